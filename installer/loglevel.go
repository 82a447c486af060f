package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// levelPage is where a running daemon tells and takes its log level.
const levelPage = "/loglevel"

// levelWords are the log levels, from the most to the least that is said.
var levelWords = []string{"debug", "info", "warn", "error"}

// levelTable are the settings of log-level.
var levelTable = []group{{"The daemon", []setting{
	{"listen", ":9466", nil, "Address that the daemon listens on; its port counts.", func(s *settings) any { return &s.listen }},
}}}

// levelCommand shows or changes the log level of the daemon that runs in the same pod.
func (e env) levelCommand(ctx context.Context) *cobra.Command {
	c := e.command("log-level", "show or set the log level of the running daemon", levelAbout, levelTable)
	c.Use, c.Args = "log-level [debug|info|warn|error]", cobra.MaximumNArgs(1)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && !slices.Contains(levelWords, args[0]) {
			return fmt.Errorf("log level %q: want one of %s", args[0], strings.Join(levelWords, ", "))
		}
		host, port, err := net.SplitHostPort(c.listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			host = "localhost"
		}
		return setLevel(ctx, "http://"+net.JoinHostPort(host, port)+levelPage, args, e.stdout)
	}
	return &c.Command
}

// setLevel asks the daemon for its level, or for another one, and prints what it is then.
func setLevel(ctx context.Context, url string, args []string, out io.Writer) error {
	method, body := http.MethodGet, []byte(nil)
	if len(args) > 0 {
		var err error
		if body, err = json.Marshal(map[string]string{"level": args[0]}); err != nil {
			return err
		}
		method = http.MethodPut
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(request) // past any proxy of the environment
	if err != nil {
		return fmt.Errorf("ask the daemon for its log level (--listen says where it is asked): %w", err)
	}
	defer answer.Body.Close()
	var said struct{ Level, Error string }
	err = json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(&said)
	switch {
	case said.Error != "":
		return errors.New(said.Error)
	case err != nil || answer.StatusCode != http.StatusOK:
		return fmt.Errorf("ask the daemon for its log level: it answers %s", answer.Status)
	}
	_, err = fmt.Fprintln(out, said.Level)
	return err
}

// fromHere lets only callers in the pod's own network through, from loopback or from the address
// that they call: whoever may run a program in the agent's container.
func fromHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := netip.ParseAddrPort(r.RemoteAddr)
		called, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		itself := called != nil && called.AddrPort().Addr().Unmap() == caller.Addr().Unmap()
		if err != nil || !itself && !caller.Addr().Unmap().IsLoopback() {
			http.Error(w, "this page is for callers within the pod", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

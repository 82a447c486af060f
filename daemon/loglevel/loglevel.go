// Package loglevel makes a log, and shows and changes its level while the daemon runs.
//
//	log, level := loglevel.New("info", os.Stderr)
//	mux.Handle(loglevel.Page, loglevel.Handler(level))
//	err := loglevel.Ask(ctx, "localhost:9466", []string{"debug"}, os.Stdout)
//
// Be aware: the page answers callers in the daemon's own network namespace alone.
package loglevel

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
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Page is where a running daemon shows and takes its log level.
const Page = "/loglevel"

// Words are the log levels, from the most to the least that is said.
var Words = []string{"debug", "info", "warn", "error"}

const askTimeout = 3 * time.Second

// New returns a log that writes to stderr, and from which level on it does. An unknown word is
// info.
func New(word string, stderr io.Writer) (*zap.Logger, zap.AtomicLevel) {
	at, err := zapcore.ParseLevel(word)
	if err != nil {
		at = zapcore.InfoLevel
	}
	level := zap.NewAtomicLevelAt(at)
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339TimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}), zapcore.Lock(zapcore.AddSync(stderr)), level)), level
}

// Ask asks the daemon that listens on an address, in the same pod, for its level, or with an
// argument for another one, and prints what it is then.
func Ask(ctx context.Context, listen string, args []string, out io.Writer) error {
	if len(args) > 0 && !slices.Contains(Words, args[0]) {
		return fmt.Errorf("log level %q: want one of %s", args[0], strings.Join(Words, ", "))
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	url := "http://" + net.JoinHostPort(host, port) + Page
	method, body := http.MethodGet, []byte(nil)
	if len(args) > 0 {
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
	// The zero Transport uses no proxy of the environment.
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return fmt.Errorf("ask the daemon for its log level (--listen says where it is asked): %w",
			err)
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

// Handler shows and sets a level.
func Handler(level zap.AtomicLevel) http.Handler { return fromHere(level) }

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

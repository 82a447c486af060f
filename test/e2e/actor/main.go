// Actor is every program that the pods of the end-to-end tests run, one for each role:
//
//	actor app                        answers TCP and UDP on port 8080: who it is, and who called;
//	                                 and HTTP probes on port 8081
//	actor call NETWORK ADDRESS ...   calls an app and prints the answer
//	actor ask SERVER NAME            asks a server of names; "-" is the first of /etc/resolv.conf
//	actor dns                        a server of names, which answers who asked
//	actor proxy sidecar              a transparent proxy, which prints whom each caller meant
//	actor istio-iptables ...         what istio-validation does: fails with 126 where rules are missing
//	actor look                       whether the pod is redirected as it starts: "redirected" or "open";
//	                                 with LOOK=true each role does this first
//	actor copy FROM TO               what the init container of a network does: writes its CNI configuration file
//
// Called as a CNI plugin it is one of another mesh, see foreign.go.
//
// Everything is printed as lines of JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Stdout, os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "actor:", err)
	if errors.Is(err, errNoRules) {
		os.Exit(126)
	}
	os.Exit(1)
}

func run(out io.Writer, args []string) error {
	if command := os.Getenv("CNI_COMMAND"); command != "" {
		return servePlugin(command, os.Stdin, out)
	}
	if len(args) == 0 {
		return errors.New("want a role")
	}
	lines := json.NewEncoder(out)
	if os.Getenv("LOOK") != "" {
		if err := look(lines); err != nil {
			return err
		}
	}
	switch role := args[0]; role {
	case "app":
		return serveApp(lines)
	case "call":
		return call(lines, args[1:])
	case "ask":
		return ask(lines, args[1:])
	case "dns":
		return serveNames(lines)
	case "proxy":
		return serveProxy(lines)
	case "istio-iptables":
		return validate()
	case "look":
		return look(lines)
	case "copy":
		return copyFile(args[1:])
	default:
		return fmt.Errorf("unknown role %q", role)
	}
}

// copyFile writes over a file that is there, as flannel's cp does.
func copyFile(args []string) error {
	if len(args) != 2 {
		return errors.New("want a file and where to copy it")
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], content, 0o644)
}

// Ready is the line that says that a role which serves does.
type Ready struct {
	Ready string
}

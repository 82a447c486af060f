package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// foreignRules are another mesh's, as its iptables program would write them.
const foreignRules = `*nat
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A ISTIO_OUTPUT -d PASSTHROUGH -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
COMMIT
`

// servePlugin is a chained CNI plugin of another mesh, on a node.
func servePlugin(command string, in io.Reader, out io.Writer) error {
	switch command {
	case "VERSION":
		_, err := io.WriteString(out,
			`{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}`)
		return err
	case "ADD":
	default:
		return nil
	}
	var conf struct{ PrevResult json.RawMessage }
	if err := json.NewDecoder(in).Decode(&conf); err != nil {
		return err
	}
	for program, passthrough := range map[string]string{
		"iptables-restore": "127.0.0.6", "ip6tables-restore": "::6",
	} {
		cmd := exec.Command("nsenter", "--net="+os.Getenv("CNI_NETNS"), program)
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(foreignRules, "PASSTHROUGH", passthrough))
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", program, err, said)
		}
	}
	_, err := out.Write(conf.PrevResult)
	return err
}

package chain

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// call is the plugin's binary, called as a runtime would, without libcni between.
type call struct {
	command string
	at      *libcni.RuntimeConf
	conf    Object
	within  []string // a program that executes it, such as strace
	prepare func(*exec.Cmd)
}

// start begins a call in the host's namespace.
func (n *Node) start(c call) *exec.Cmd {
	n.t.Helper()
	conf := n.Entry(Object{"cniVersion": "1.0.0", "name": "pods"})
	if told, ok := c.at.CapabilityArgs["io.kubernetes.cri.pod-annotations"]; ok && told != nil {
		conf["runtimeConfig"] = Object{"io.kubernetes.cri.pod-annotations": told}
	}
	maps.Copy(conf, c.conf)
	stdin, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	var args []string
	for _, a := range c.at.Args {
		args = append(args, a[0]+"="+a[1])
	}
	words := slices.Concat(c.within, []string{filepath.Join(programs(n.t), "sidecar-cni")})
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + programs(n.t), "CNI_COMMAND=" + c.command,
		"CNI_NETNS=" + c.at.NetNS,
		"CNI_CONTAINERID=" + c.at.ContainerID, "CNI_IFNAME=" + c.at.IfName,
		"CNI_ARGS=" + strings.Join(args, ";"),
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &bytes.Buffer{}, &bytes.Buffer{}
	if c.prepare != nil {
		c.prepare(cmd)
	}
	n.Host.Do(n.t, func() { err = cmd.Start() })
	if err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

// run makes a call and returns what it wrote on standard output.
func (n *Node) run(c call) (string, error) {
	n.t.Helper()
	cmd := n.start(c)
	err := cmd.Wait()
	return cmd.Stdout.(*bytes.Buffer).String(), err
}

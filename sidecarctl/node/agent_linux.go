package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

const (
	askTimeout = 3 * time.Second
	maxAnswer  = 1 << 20
)

// agent says whether the agent runs, answers the plugin, and is ready.
func (l *look) agent(ctx context.Context) []verdict.Row {
	rows := []verdict.Row{l.runs()}
	if _, err := os.Stat(l.files.at(filepath.Join(l.runDir, "uninstalled"))); err == nil {
		rows = append(rows, wrong("taken out", "an uninstallation has taken this node out: no "+
			"agent writes to it", "if the plugin shall stay, undo the uninstallation by helm "+
			"rollback, or remove "+filepath.Join(l.runDir, "uninstalled")))
	}
	rows = append(rows, l.socketAnswers(ctx))
	if l.process.pid != 0 {
		rows = append(rows, l.ready(ctx))
	}
	return rows
}

func (l *look) runs() verdict.Row {
	const about = "agent"
	if err := l.processErr; err != nil {
		return unread(about, "none is known to run, nor how it was started: "+err.Error(), err,
			"see why its pod is not on this node: kubectl get pods -A -l "+
				"app.kubernetes.io/name=sidecar-cni -o wide, and sidecarctl cluster; name another "+
				"run directory than the usual one by --run-dir")
	}
	return fine(about, fmt.Sprintf("it runs as process %d%s", l.process.pid,
		ofVersion(l.process.version)))
}

// socketAnswers asks the agent as the plugin does.
func (l *look) socketAnswers(ctx context.Context) verdict.Row {
	const about = "socket"
	socket := l.files.at(l.agentSocket)
	conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "unix", socket)
	if err != nil {
		return unread(about, "the agent does not answer: "+err.Error(), err, "see the row agent; "+
			"meanwhile the plugin asks the API server, if it reaches it")
	}
	status, text, err := get(ctx, conn, protocol.Origin+protocol.PathHealth)
	switch {
	case err != nil:
		return wrong(about, "the agent does not answer at "+l.agentSocket+": "+err.Error(),
			"look at its log; delete its pod if it says nothing")
	case status != http.StatusOK:
		return warning(about, fmt.Sprintf("%s answers %d: %s", l.agentSocket, status, text),
			"wait until it has heard of its pods; if that lasts, look at its log")
	}
	return fine(about, l.agentSocket+" answers")
}

func (l *look) ready(ctx context.Context) verdict.Row {
	const about = "ready"
	switch status, text, err := l.page(ctx, "readyz"); {
	case err != nil:
		return unknown(about, "the agent's page /readyz was not read: "+err.Error(),
			"run this as root on the node, or see sidecarctl cluster")
	case status != http.StatusOK:
		return wrong(about, "the agent says: "+text, "see the other rows that are wrong, and its "+
			"log; docs/installer.md explains the reason")
	default:
		return fine(about, text)
	}
}

// page reads a page of the agent. It listens in the network of its pod, which this process may be
// in.
func (l *look) page(ctx context.Context, name string) (status int, text string, err error) {
	err = l.inAgentsNetwork(func() error {
		conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "tcp",
			net.JoinHostPort("127.0.0.1", l.process.listen))
		if err != nil {
			return err
		}
		status, text, err = get(ctx, conn, "http://agent/"+name)
		return err
	})
	return status, text, err
}

func (l *look) inAgentsNetwork(do func() error) error {
	path := l.files.at(fmt.Sprintf("/proc/%d/ns/net", l.process.pid))
	its, err := podns.Identify(path)
	if err != nil {
		return err
	}
	if own, err := podns.Identify("/proc/thread-self/ns/net"); err == nil && own == its {
		return do()
	}
	host, err := podns.FindHost(l.files.at("/proc"), "sidecarctl")
	if err != nil {
		return err
	}
	n, err := host.Open(path)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Do(do)
}

// get asks over a connection, which it closes.
func get(ctx context.Context, conn net.Conn, url string) (status int, text string, err error) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return 0, "", err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if err := request.Write(conn); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), request)
	if err != nil {
		return 0, "", errors.Join(errors.New("no answer of HTTP"), err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	return answer.StatusCode, strings.TrimSpace(string(body)), err
}

func ofVersion(version string) string {
	if version == "" {
		return ""
	}
	return ", version " + version
}

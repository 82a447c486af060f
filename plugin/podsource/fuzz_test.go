package podsource

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
)

func FuzzAgentAnswer(f *testing.F) {
	right, err := json.Marshal(meshed("5d1c"))
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range []string{
		string(right), string(right[:len(right)/2]),
		strings.Replace(string(right), "5d1c", "a1da", 1), `{}`, `null`, `[]`, ``,
		`{"reason":"absent"}`, `{"reason":"uid","uid":"a1da"}`, `{"reason":"uid","uid":7}`,
		"\x00\xff", `{"metadata":{"name":{}}}`,
		`{"metadata":null,"spec":{"containers":[null]}}`, strings.Repeat("[", 20000),
	} {
		for _, status := range []string{"200 OK", "404 Not Found", "503 Service Unavailable",
			"500 Oops", "100 Continue", "204 No Content"} {
			f.Add([]byte("HTTP/1.1 " + status + "\r\nConnection: close\r\n\r\n" + body))
		}
	}
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n{"))
	f.Add([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ours, theirs := connection(nil)
		_, _ = theirs.Write(raw)
		theirs.Close()
		dial := func(context.Context, string, string) (net.Conn, error) { return ours, nil }
		a := Sources{AgentSocket: agentAddress, Dial: dial}.askAgent(t.Context(), web)
		switch {
		case a.pod == nil && a.err == nil:
			t.Error("neither a pod nor an error")
		case a.pod == nil && a.verdict != away && a.verdict != undecided && a.verdict != absent:
			t.Errorf("verdict %d is none of the agent's", a.verdict)
		case a.pod == nil:
			checkWords(t, a.err, "socket "+agentAddress+": ")
		case a.pod.Metadata.Namespace != web.Namespace || a.pod.Metadata.Name != web.Name ||
			len(a.pod.Spec.Containers) == 0:
			t.Errorf("took %v for the pod", a.pod)
		case a.pod.Metadata.UID != web.UID && !a.pod.Mirror():
			t.Errorf("took uid %q for the pod's", a.pod.Metadata.UID)
		}
	})
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(ofOlderAgent))
	f.Add([]byte(`{"current-context":"n","clusters":[{"name":"c","cluster":{"server":"https://x"}}]}`))
	f.Add([]byte("a: &a {<<: *a}\nclusters: *a"))
	f.Add([]byte("? [x]\n: !!binary |\n  x\n---\n- *b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const enough = 4000 // of several words, of which each may have all of its bytes quoted
		if _, _, err := parseKubeconfig(data); err != nil &&
			(len(err.Error()) > enough || strings.Contains(err.Error(), "\n")) {
			t.Errorf("not a line that can be read: %v", err)
		}
	})
}

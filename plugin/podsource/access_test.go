package podsource

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
)

// spoil replaces words in the kubeconfig that the API server has written.
func spoil(t *testing.T, w *world, old, replacement string) {
	t.Helper()
	data, err := os.ReadFile(w.api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("there is no %q in the kubeconfig:\n%s", old, data)
	}
	put(t, w.api.Kubeconfig(), strings.Replace(string(data), old, replacement, 1))
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestUnusableKubeconfigIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*testing.T, *world)
		words string
	}{
		"no file": {func(t *testing.T, w *world) { remove(t, w.api.Kubeconfig()) },
			"/kubeconfig: no such file or directory"},
		"a folder": {func(t *testing.T,
			w *world) {
			remove(t, w.api.Kubeconfig())
			_ = os.Mkdir(w.api.Kubeconfig(), 0o700)
		}, "/kubeconfig: is a directory"},
		"garbage": {func(t *testing.T,
			w *world) {
			put(t, w.api.Kubeconfig(), "{\x00")
		}, "/kubeconfig: "},
		"empty": {func(t *testing.T, w *world) { put(t, w.api.Kubeconfig(), "") },
			`current-context "": there is no such context`},
		"another context": {func(t *testing.T,
			w *world) {
			spoil(t, w, "current-context: node", "current-context: x")
		}, `current-context "x"`},
		"no such cluster": {func(t *testing.T,
			w *world) {
			spoil(t, w, "cluster: here", "cluster: x")
		}, `want its cluster "x"`},
		"no such user": {func(t *testing.T,
			w *world) {
			spoil(t, w, "user: plugin", "user: x")
		}, `its user "x"`},
		"no TLS": {func(t *testing.T, w *world) { spoil(t, w, "https:", "http:") },
			`server "http://api.test:6443": want https://host:port`},
		"any certificate": {extra("certificate-authority: ca.crt",
			"insecure-skip-tls-verify: true"), "insecure-skip-tls-verify: want " +
			"certificate-authority"},
		"a proxy": {extra("certificate-authority: ca.crt", "proxy-url: http://x"),
			"proxy-url: not supported"},
		"a program": {extra("tokenFile: token", "exec: {command: x}"),
			"exec: not supported"},
		"a provider": {extra("tokenFile: token", "auth-provider: {name: x}"),
			"auth-provider: not supported"},
		"a password": {extra("tokenFile: token", "username: x"),
			"username: not supported"},
		"somebody else": {extra("tokenFile: token", "as: x"), "as: not supported"},
		"two mistakes": {extra("tokenFile: token", "as: x\n    username: y"),
			"as: not supported, username: not supported"},
		"no CA": {func(t *testing.T,
			w *world) {
			spoil(t, w, "certificate-authority: ca.crt", "")
		}, "certificate-authority: want it in the kubeconfig"},
		"no CA file": {func(t *testing.T, w *world) { remove(t, w.api.CAFile()) },
			"/ca.crt: no such file"},
		"no CA in the file": {func(t *testing.T, w *world) { put(t, w.api.CAFile(), "x") },
			"/ca.crt: there is no certificate in it"},
		"no credential": {func(t *testing.T,
			w *world) {
			spoil(t, w, "tokenFile: token", "")
		}, "want tokenFile, token or client-certificate"},
		"no token file": {func(t *testing.T, w *world) { remove(t, w.api.TokenFile()) },
			"/token: no such file"},
		"an empty token file": {func(t *testing.T, w *world) { put(t, w.api.TokenFile(), "\n") },
			"/token: there is no token in it"},
		"no token": {func(t *testing.T, w *world) { put(t, w.api.TokenFile(), "a\r\nX: y") },
			"/token: there is no token in it"},
		"no key": {func(t *testing.T,
			w *world) {
			spoil(t, w, "tokenFile: token", "client-certificate: ca.crt")
		}, "client-key: want it in the kubeconfig"},
		"another's key": {func(t *testing.T, w *world) {
			spoil(t, w, "tokenFile: token", "client-certificate: ca.crt\n    client-key: token")
		}, "/token: tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.agent.Break(agent.Unsynced)
				c.spoil(t, w)
				_, took, err := w.find(t, web)
				checkClass(t, err, BadConfig)
				checkWords(t, err, "kubeconfig "+w.api.Kubeconfig()+": ", c.words,
					"check that the sidecar-cni agent runs")
				if took != 0 {
					t.Errorf("it took %v although the agent is there", took)
				}
			})
		})
	}
}

func extra(line, more string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) { spoil(t, w, line, line+"\n    "+more) }
}

// ofOlderAgent is what agents wrote before they wrote JSON, and the name that a test's server has.
const ofOlderAgent = `# Written by sidecar-cni-installer, for the sidecar-cni plugin. Changes are overwritten.
apiVersion: v1
kind: Config
current-context: sidecar-cni
contexts:
- name: sidecar-cni
  context: {cluster: local, user: sidecar-cni}
clusters:
- name: local
  cluster:
    tls-server-name: kubernetes.default.svc
    server: "https://%s"
    certificate-authority: ca.crt
users:
- name: sidecar-cni
  user:
    tokenFile: token
`

func TestKubeconfigMayHoldWhatItCouldName(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	inWorlds(t, map[string]func(*testing.T, *world){
		"the CA": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			data := base64.StdEncoding.EncodeToString(read(t, w.api.CAFile()))
			spoil(t, w, "certificate-authority: ca.crt", "certificate-authority-data: "+data)
			remove(t, w.api.CAFile())
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"the token": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			spoil(t, w, "tokenFile: token", "token: "+string(read(t, w.api.TokenFile())))
			remove(t, w.api.TokenFile())
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"a token, which counts less than a token file": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			spoil(t, w, "tokenFile: token", "tokenFile: token\n    token: old")
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"absolute paths": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			spoil(t, w, "tokenFile: token", "tokenFile: "+w.api.TokenFile())
			spoil(t, w, "certificate-authority: ca.crt",
				"certificate-authority: "+filepath.Join(filepath.Dir(w.api.CAFile()), "ca.crt"))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"a client certificate in place of a token": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			cert, key := w.api.ClientCertificate(t)
			spoil(t, w, "tokenFile: token",
				"client-certificate: "+cert+"\n    client-key: "+filepath.Base(key))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"a client certificate itself, which is named when it has not the right": func(t *testing.T,
			w *world) {
			cert, key := w.api.ClientCertificate(t)
			base64 := base64.StdEncoding.EncodeToString
			spoil(t, w, "tokenFile: token",
				"client-certificate-data: "+base64(read(t, cert))+"\n    client-key-data: "+
					base64(read(t, key)))
			apiBehaviours["403"].set(t, w)
			w.agent.Break(agent.Unsynced)
			_, _, err := w.find(t, web)
			checkClass(t, err, Denied)
			checkWords(t, err, `user "sidecar-cni-plugin", client-certificate in the kubeconfig`)
		},
		"the same as JSON": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			put(t, w.api.Kubeconfig(),
				`{"current-context":"n","contexts":[{"name":"n","context":{"cluster":"c","user":"u"}}],`+
					`"clusters":[{"name":"c","cluster":{"server":"https://`+apiAddress+
					`","tls-server-name":"kubernetes.default.svc",`+
					`"certificate-authority":"ca.crt"}}],"users":[{"name":"u","user":{"tokenFile":"token"}}]}`)
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"what an older agent wrote": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			put(t, w.api.Kubeconfig(), fmt.Sprintf(ofOlderAgent, apiAddress))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"what the agent writes": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			dir := filepath.Join(t.TempDir(), "sidecar-cni.d")
			_, err := node.Credentials{Dir: dir}.Write(read(t, w.api.TokenFile()),
				read(t, w.api.CAFile()), "https://"+apiAddress)
			if err != nil {
				t.Fatal(err)
			}
			put(t, w.api.Kubeconfig(), strings.Replace(string(read(t, dir+"/kubeconfig")),
				`"server":`, `"tls-server-name": "kubernetes.default.svc", "server":`, 1))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"a file that comes while the agent is away": func(t *testing.T, w *world) {
			w.away(agentAddress)
			w.api.Put(meshed("5d1c"))
			token := string(read(t, w.api.TokenFile()))
			remove(t, w.api.TokenFile())
			time.AfterFunc(4*time.Second, func() { put(t, w.api.TokenFile(), token) })
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
	})
}

func TestCertificateProblemsHaveTheirOwnRemedies(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(*testing.T, *world){
		"another name": func(t *testing.T, w *world) {
			w.away(agentAddress)
			spoil(t, w, "tls-server-name: kubernetes.default.svc", "tls-server-name: other.test")
			_, _, err := w.find(t, web)
			checkClass(t, err, Unreachable)
			checkWords(t, err, "not other.test",
				"check server and tls-server-name in kubeconfig "+w.api.Kubeconfig())
		},
		"run out": func(t *testing.T, w *world) {
			w.away(agentAddress)
			<-time.After(48 * time.Hour) // which last no time in here
			_, _, err := w.find(t, web)
			checkClass(t, err, Unreachable)
			checkWords(t, err, "has expired", "check the node's clock")
		},
	})
}

// Errors become Events that many may read.
func TestAnErrorQuotesNothingOfTheKubeconfig(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-the-file"
	for name, after := range map[string]string{
		"a tab": "\tusername: x", "an alias": "  as: *nobody", "a reserved sign": "  as: @x",
		"no value": "  - x\n  y", "a list": "- x",
	} {
		data := "apiVersion: v1\nusers:\n- name: a\n  user:\n    token: " + secret + "\n" + after +
			"\n"
		_, _, err := parseKubeconfig([]byte(data))
		if err == nil || strings.Contains(err.Error(), "cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

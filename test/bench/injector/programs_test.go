package injector_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const template = "../../../injector/inject/render/testdata/istio-1.1.yaml"

// programs are in a folder, with what they are given.
type programs struct {
	dir     string
	trusted *x509.CertPool
}

func (p programs) file(name string) string { return filepath.Join(p.dir, name) }

// build builds them as they are released.
func build(b *testing.B) programs {
	b.Helper()
	const module = "github.com/sidecar-cni/sidecar-cni/"
	p := programs{dir: b.TempDir(), trusted: x509.NewCertPool()}
	cmd := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		p.dir+"/", module+"injector", module+"test/bench/injector/allow")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build programs: %v\n%s", err, out)
	}
	p.certify(b)
	return p
}

// certify writes a certificate as certify's authority would sign it, and its key.
func (p programs) certify(b *testing.B) {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{{127, 0, 0, 1}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.trusted.AppendCertsFromPEM(public)
	p.write(b, "tls.crt", public)
	p.write(b, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func (p programs) write(b *testing.B, name string, data []byte) {
	b.Helper()
	if err := os.WriteFile(p.file(name), data, 0o600); err != nil {
		b.Fatal(err)
	}
}

func (p programs) startEmpty(b *testing.B) *webhook {
	b.Helper()
	address := freeAddress(b)
	return p.start(b, address, exec.CommandContext(b.Context(), p.file("allow"), address,
		freeAddress(b), p.file("tls.crt"), p.file("tls.key")))
}

func (p programs) startInjector(b *testing.B) *webhook {
	b.Helper()
	config, err := os.ReadFile(template)
	if err != nil {
		b.Fatal(err)
	}
	p.write(b, "config.yaml", config)
	address := freeAddress(b)
	return p.start(b, address, exec.CommandContext(b.Context(), p.file("injector"), "serve",
		"--listen", address, "--status-listen", freeAddress(b),
		"--config-file", p.file("config.yaml"),
		"--tls-cert-file", p.file("tls.crt"), "--tls-key-file", p.file("tls.key"),
		"--validation-image", "registry.example.com/sidecar-cni:0.1.0"))
}

// start has a process write its log to a file, of which the end is shown if the benchmark fails.
func (p programs) start(b *testing.B, address string, cmd *exec.Cmd) *webhook {
	b.Helper()
	log, err := os.Create(cmd.Path + ".log")
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if text, _ := os.ReadFile(log.Name()); b.Failed() {
			b.Logf("the log ends with %s", text[max(0, len(text)-2000):])
		}
	})
	return newWebhook(address, cmd.Process.Pid, p.trusted)
}

// reviewOf is what the API server sends about a pod of 4 KB.
func reviewOf(b *testing.B) []byte {
	b.Helper()
	type object = map[string]any
	var env []any
	for range 40 {
		env = append(env, object{"name": "VARIABLE", "value": strings.Repeat("x", 40)})
	}
	pod := object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "web", "namespace": "shop", "labels": object{"app": "web"},
			"annotations": object{"example.com/note": strings.Repeat("x", 1000)}},
		"spec": object{"containers": []any{
			object{"name": "app", "image": "example.com/app:1", "env": env},
		}},
	}
	data, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	if len(data) < 4000 || len(data) > 5000 {
		b.Fatalf("%d bytes, want a pod of 4 KB", len(data))
	}
	data, err = json.Marshal(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": object{"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE",
			"kind":      object{"group": "", "version": "v1", "kind": "Pod"},
			"namespace": "shop", "object": pod}})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

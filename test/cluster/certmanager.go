package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// certManagerKit is cert-manager in one program, and its CustomResourceDefinitions.
func certManagerKit(source string) (kit, error) {
	parts, err := contents(source, "go.mod", "go.sum", "main.go")
	return kit{name: "certmanager", key: keyOf(parts...),
		build: func(ctx context.Context, folder string) *exec.Cmd {
			return compile(ctx, source, stripped, filepath.Join(folder, "certmanager"))
		}, also: func(folder string) error { return copyDefinitions(source, folder) }}, err
}

// copyDefinitions copies the definitions of the version that the program is built from.
func copyDefinitions(source, folder string) error {
	const module = "github.com/cert-manager/cert-manager"
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find module of cert-manager: %w", err)
	}
	crds := filepath.Join(strings.TrimSpace(string(out)), "deploy", "crds")
	return os.CopyFS(filepath.Join(folder, "crds"), os.DirFS(crds))
}

// StartCertManager has the API server know cert-manager's kinds, and runs its controller and its
// cainjector beside the control plane, as an administrator. Issuers of the kinds selfSigned and ca
// sign, and every request is approved. There is no cert-manager-webhook: the schemas validate.
func (c *Cluster) StartCertManager(t testing.TB) *Process {
	t.Helper()
	definitions, err := filepath.Glob(filepath.Join(c.kits["certmanager"], "crds", "*.yaml"))
	if err == nil && len(definitions) == 0 {
		err = errors.New("the kit has no CustomResourceDefinitions")
	}
	args := []string{"apply", "--server-side"}
	for _, d := range definitions {
		args = append(args, "--filename="+d)
	}
	if err == nil {
		_, err = c.TryKubectl("", args...)
	}
	if err == nil {
		_, err = c.TryKubectl("", slices.Concat([]string{"wait", "--for=condition=Established",
			"--timeout=" + awaitTimeout.String()}, args[2:])...)
	}
	if err != nil {
		t.Fatalf("start cert-manager: %v", err)
	}
	p := c.process(c.site, "cert-manager", answers(c.site, "http://127.0.0.1:9403/healthz"),
		filepath.Join(c.kits["certmanager"], "certmanager"), "--kubeconfig="+admin,
		"--health=127.0.0.1:9403")
	p.Start(t)
	return p
}

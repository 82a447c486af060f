package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/deployments/chart/injection"
)

// manifest is what the app's author writes.
//
//go:embed web.yaml
var manifest []byte

// inject has sidecarctl put the proxy into the manifest, as a user would, shows both, and returns
// what the pods' template has become.
func (d *demo) inject() corev1.PodTemplateSpec {
	dir := d.t.TempDir()
	for name, content := range map[string][]byte{"web.yaml": manifest,
		"config.yaml": injection.Config, "mesh.yaml": injection.Mesh,
		"values.yaml": injection.Values} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	args := []string{"inject", "-f", "web.yaml", "--injectConfigFile", "config.yaml",
		"--meshConfigFile", "mesh.yaml", "--valuesFile", "values.yaml"}
	cmd := exec.CommandContext(d.t.Context(), d.tool, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var workload appsv1.Deployment
	if err == nil {
		err = yaml.UnmarshalStrict(out, &workload)
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		d.t.Fatalf("sidecarctl %s: %v", strings.Join(args, " "), err)
	}
	d.showInjection(args, workload.Spec.Template)
	return workload.Spec.Template
}

func (d *demo) showInjection(args []string, template corev1.PodTemplateSpec) {
	fmt.Fprint(d.out, "\nDeployment demo/web\n")
	for line := range strings.Lines(string(manifest)) {
		fmt.Fprint(d.out, "    "+line)
	}
	fmt.Fprintf(d.out, "  sidecarctl %s\n  containers of its pods\n", breakFlags(args))
	initialized := false
	for _, c := range containers(template) {
		fmt.Fprintf(d.out, "    %-11s  uid %d, %s%s\n", c.Name, user(d.t, template, c.Name),
			added(c.SecurityContext), stays(c))
		initialized = initialized || c.Name == "istio-init"
	}
	if !initialized {
		fmt.Fprint(d.out, "  no istio-init: the plugin writes the rules\n")
	}
}

// stays says of an init container whether it is a native sidecar.
func stays(c corev1.Container) string {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return ", a native sidecar"
	}
	return ""
}

// containers are those of a template, init containers first.
func containers(template corev1.PodTemplateSpec) []corev1.Container {
	return slices.Concat(template.Spec.InitContainers, template.Spec.Containers)
}

// breakFlags prints the configuration on a line of its own, for a narrow terminal.
func breakFlags(args []string) string {
	return strings.Replace(strings.Join(args, " "), " --", " \\\n    --", 1)
}

// added says which capabilities a container asks for.
func added(c *corev1.SecurityContext) string {
	if c == nil || c.Capabilities == nil || len(c.Capabilities.Add) == 0 {
		return "adds no capability"
	}
	return fmt.Sprintf("adds capabilities %v", c.Capabilities.Add)
}

// user is the uid that a container of the template runs as.
func user(t testing.TB, template corev1.PodTemplateSpec, container string) uint32 {
	for _, c := range containers(template) {
		if c.Name == container && c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			return uint32(*c.SecurityContext.RunAsUser) //nolint:gosec // the API bounds it
		}
	}
	t.Fatalf("the injected pod has no container %s with a runAsUser", container)
	return 0
}

// fromTemplate is a pod as the workload's controller makes it.
func fromTemplate(template corev1.PodTemplateSpec, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	p.Name, p.UID = name, types.UID("uid-of-"+name)
	return p
}

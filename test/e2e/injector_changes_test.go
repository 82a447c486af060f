//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// caSecret has the authority of the webhooks' certificates.
const caSecret = "sidecar-cni-injector-ca"

func (in *injecting) rolls(t *testing.T, _ *load) {
	in.Kubectl(t, "--namespace="+home, "rollout", "restart", "deployment", injectorName)
	in.AwaitRollout(t, home, "deployment/"+injectorName)
}

func (in *injecting) loses(t *testing.T, _ *load) {
	in.Kubectl(t, "--namespace="+home, "delete", "pod", "--wait=false",
		in.mustReplicas(t)[0].Name)
	in.AwaitRollout(t, home, "deployment/"+injectorName)
}

// reconfigures: pods are injected by the one configuration or the other.
func (in *injecting) reconfigures(t *testing.T, _ *load) {
	before := in.configuration(t)
	in.configure(t, before, func(config podtree.Object) {
		config["injectedAnnotations"] = podtree.Object{"example.com/edited": "yes"}
	})
	if p := in.mustAdmit(t, newPod(injectedSpace, "asks")); p.Annotations["example.com/edited"] == "" {
		t.Errorf("its annotations are %v", p.Annotations)
	}
	in.writeConfiguration(t, before)
}

// awaitGone waits until each replica that was told to end has, for as long as that takes.
func (in *injecting) awaitGone(t *testing.T, _ *load) {
	in.Await(t, "the old replicas to go", func(ctx context.Context) error {
		all, err := in.injectors(ctx)
		for _, p := range all {
			if p.DeletionTimestamp != nil {
				err = fmt.Errorf("%s is there", p.Name)
			}
		}
		return err
	})
}

// renews: an authority that nears its end is followed by another. The replicas follow the Secret
// without a restart, and the API server trusts the certificates of both.
func (in *injecting) renews(t *testing.T, _ *load) {
	in.fade(t)
	// Connections outlive certificates: replicas come that the API server has none to.
	const rolls = "injector.podAnnotations.example=renewed"
	in.upgrade(t, rolls, "injector.inject.namespaces=all")
	secret := in.secret(t)
	found, err := certificate.ParseBundle(secret.Data[certificate.CertKey])
	if err != nil {
		t.Fatal(err)
	}
	made := found[0]
	if made.NotAfter.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("the authority ends on %s", made.NotAfter)
	}
	for _, name := range []string{injectWith, stripWith} {
		if !bytes.Contains(in.bundle(t, name), bytes.TrimSpace(secret.Data[certificate.CertKey])) {
			t.Errorf("%s does not name the new authority", name)
		}
	}
	in.awaitSigned(t, made)
	in.expectNamespaces(t)
	in.upgrade(t, rolls)
}

// fade has the webhooks use an authority with a year left, as if nine had passed: the API server
// trusts it before the replicas use it.
func (in *injecting) fade(t *testing.T) {
	t.Helper()
	old, err := certificate.NewAuthority(time.Now().AddDate(-9, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	key, err := old.Key()
	if err != nil {
		t.Fatal(err)
	}
	secret, signs := in.secret(t), certificate.Bundle(old.Certificate())
	both := append(bytes.Clone(signs), secret.Data[certificate.BundleKey]...)
	for _, name := range []string{injectWith, stripWith} {
		in.patchWebhook(t, name, `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle",`+
			`"value":"`+base64.StdEncoding.EncodeToString(both)+`"}]`)
	}
	secret.Data = map[string][]byte{certificate.BundleKey: both, certificate.CertKey: signs,
		certificate.PrivateKeyKey: key}
	if _, err := in.Client().CoreV1().Secrets(home).Update(t.Context(), secret,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	in.awaitSigned(t, old.Certificate())
}

func (in *injecting) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret, err := in.Client().CoreV1().Secrets(home).Get(t.Context(), caSecret,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// bundle are the authorities that the API server trusts for a webhook of ours.
func (in *injecting) bundle(t *testing.T, name string) []byte {
	t.Helper()
	found, err := in.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(
		t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Webhooks[0].ClientConfig.CABundle
}

// awaitSigned waits until each replica serves a certificate of an authority.
func (in *injecting) awaitSigned(t *testing.T, authority *x509.Certificate) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	in.Await(t, "certificates of the new authority", func(ctx context.Context) error {
		all, err := in.replicas(ctx)
		for i := range all {
			if err == nil {
				err = in.handshake(ctx, &all[i], roots)
			}
		}
		return err
	})
}

// losesSuddenly ends a replica as the kernel does when memory runs out. The API server's
// connections to it break, and what it was asked is lost: that is over when the replica is back.
func (in *injecting) losesSuddenly(t *testing.T, l *load) {
	l.expectAllWell(t)
	victim := in.mustReplicas(t)[0]
	for _, process := range in.injectorProcesses(t, &victim) {
		in.node(t, &victim).Run(t, "", "kill", "-KILL", process)
	}
	in.AwaitPod(t, home, victim.Name, func(p *corev1.Pod) error {
		if p.Status.ContainerStatuses[0].RestartCount == 0 {
			return errors.New("it was not started again")
		}
		return cluster.Ready(p)
	})
	made, lost := l.sofar()
	l.forget() // what is under way may have been the replica's
	t.Logf("%d of %d creates failed until it was back\n%s", len(lost), made,
		strings.Join(lost[:min(3, len(lost))], "\n"))
	l.expectAllWell(t) // from then on
}

// injectorProcesses are those of a replica that serve.
func (in *injecting) injectorProcesses(t *testing.T, replica *corev1.Pod) (found []string) {
	t.Helper()
	n := in.node(t, replica)
	all, err := processes(n, replica)
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		command, _ := os.ReadFile(n.File("/proc/" + process + "/cmdline")) // it may have ended
		if strings.HasPrefix(string(command), "/sidecar-cni-injector\x00") {
			found = append(found, process)
		}
	}
	if len(found) != 1 {
		t.Fatalf("of %s the processes %v serve", replica.Name, found)
	}
	return found
}

// mostResident is the most memory that a process has taken, in bytes.
func mostResident(t *testing.T, n *cluster.Node, process string) int {
	t.Helper()
	for line := range strings.Lines(readFile(t, n, filepath.Join("/proc", process, "status"))) {
		if fields := strings.Fields(line); fields[0] == "VmHWM:" {
			kilobytes, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatalf("the kernel says nothing of process %s", process)
	return 0
}

// switchesOff: the webhooks go before those who answer them.
func (in *injecting) switchesOff(t *testing.T, l *load) {
	l.changes.Store(false)
	in.upgrade(t, "injector.enabled=false")
	in.expectWithdrawn(t, injectorName+"-switch-off")
	l.expectAllWell(t)
	in.upgrade(t)
	in.awaitInjection(t, injectedSpace, true)
	in.awaitStrip(t)
	l.forget() // while it is switched on, pods are refused
	l.changes.Store(true)
}

// uninstalls: pods that were injected stay, and redirected.
func (in *injecting) uninstalls(t *testing.T, l *load) {
	stays := on("node0", newPod(injectedSpace, "stays"))
	in.create(t, stays)
	stays = in.ready(t, stays)
	l.changes.Store(false)
	in.helmRun(t, "uninstall")
	in.expectWithdrawn(t, injectorName+"-withdraw")
	in.awaitNoInjectors(t)
	in.expectProxied(t, stays)
}

// expectWithdrawn holds that the webhook configurations are gone, and by a Job that Helm waits for:
// it promises no order of what it deletes itself.
func (in *injecting) expectWithdrawn(t *testing.T, job string) {
	t.Helper()
	in.awaitEvent(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: job}},
		"Completed")
	for _, name := range []string{injectWith, stripWith} {
		_, err := in.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(
			t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

func (in *injecting) awaitNoInjectors(t *testing.T) {
	t.Helper()
	in.Await(t, "the injector to go", func(ctx context.Context) error {
		all, err := in.injectors(ctx)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there are %s", podNames(all))
		}
		return err
	})
}

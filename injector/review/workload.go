package review

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// workloadOf returns what a pod is one of: its controller, or what that controller is known to be
// made by; else the pod itself. No API server is asked: the names say it.
func workloadOf(pod podtree.Object) (metav1.TypeMeta, string) {
	owner := controllerOf(pod)
	name := podtree.String(owner, "name")
	of := metav1.TypeMeta{
		APIVersion: podtree.String(owner, "apiVersion"), Kind: podtree.String(owner, "kind"),
	}
	if name == "" || of.Kind == "" {
		return metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, nameOf(pod)
	}
	switch group, _, _ := strings.Cut(of.APIVersion, "/"); group + " " + of.Kind {
	case "apps ReplicaSet": // DEPLOYMENT-HASH
		hash := podtree.String(pod, "metadata", "labels", "pod-template-hash")
		deployment, ok := strings.CutSuffix(name, "-"+hash)
		if ok && hash != "" && deployment != "" {
			of.Kind, name = "Deployment", deployment
		}
	case "batch Job": // CRONJOB-MINUTES, since 1970
		if cronJob := withoutMinutes(name); cronJob != "" {
			of.Kind, name = "CronJob", cronJob
		}
	}
	return of, name
}

// controllerOf returns the owner's reference that says so of itself; nil if there is none.
func controllerOf(pod podtree.Object) podtree.Object {
	for _, one := range podtree.List(pod, "metadata", "ownerReferences") {
		owner, _ := one.(podtree.Object)
		if controls, _ := owner["controller"].(bool); controls {
			return owner
		}
	}
	return nil
}

// withoutMinutes returns the name of the CronJob that has made a Job of that name; "" if none has.
// The controller writes minutes, and has written seconds.
func withoutMinutes(job string) string {
	at := strings.LastIndexByte(job, '-')
	if at < 0 {
		return ""
	}
	digits := job[at+1:]
	if len(digits) < 8 || len(digits) > 10 || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return job[:at]
}

// nameOf returns the name of a pod, or the beginning of the name that it will be given.
func nameOf(pod podtree.Object) string {
	return cmp.Or(podtree.String(pod, "metadata", "name"),
		strings.TrimSuffix(podtree.String(pod, "metadata", "generateName"), "-"))
}

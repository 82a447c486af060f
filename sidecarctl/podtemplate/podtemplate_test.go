package podtemplate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

func TestFind(t *testing.T) {
	t.Parallel()
	body := map[string]any{"spec": map[string]any{"containers": []any{}}}
	in := func(keys ...string) map[string]any {
		object := body
		for _, key := range slices.Backward(keys) {
			object = map[string]any{key: object}
		}
		return object
	}
	for name, row := range map[string]struct {
		object map[string]any
		kind   string
		path   string
		none   bool
	}{
		"a pod":                {object: body, kind: "Pod"},
		"a Deployment":         {object: in("spec", "template"), kind: "Deployment", path: "spec.template"},
		"a resource of others": {object: in("spec", "template"), kind: "Rollout", path: "spec.template"},
		"a CronJob": {object: in("spec", "jobTemplate", "spec", "template"), kind: "CronJob",
			path: "spec.jobTemplate.spec.template"},
		"a PodTemplate":           {object: in("template"), kind: "PodTemplate", path: "template"},
		"a template of something": {object: map[string]any{"template": "x"}, kind: "X", none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, path := podtemplate.Find(row.object, row.kind)
			if (found == nil) != row.none || strings.Join(path, ".") != row.path {
				t.Errorf("found %v at %q, want it at %q", found, path, row.path)
			}
		})
	}
}

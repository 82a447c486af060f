package review

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

func TestTheWorkloadOfAPod(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		version, kind, owner, hash string
		want                       string
	}{
		"a Deployment":            {"apps/v1", "ReplicaSet", "web-5d4f8c7b9", "5d4f8c7b9", "apps/v1 Deployment web"},
		"a ReplicaSet of its own": {"apps/v1", "ReplicaSet", "web", "", "apps/v1 ReplicaSet web"},
		"a hash of another":       {"apps/v1", "ReplicaSet", "web-1", "2", "apps/v1 ReplicaSet web-1"},
		"a hash alone":            {"apps/v1", "ReplicaSet", "-1", "1", "apps/v1 ReplicaSet -1"},
		"another's ReplicaSet":    {"example.com/v1", "ReplicaSet", "web-1", "1", "example.com/v1 ReplicaSet web-1"},
		"a CronJob":               {"batch/v1", "Job", "report-29012345", "", "batch/v1 CronJob report"},
		"a CronJob, by seconds":   {"batch/v1", "Job", "report-1700000000", "", "batch/v1 CronJob report"},
		"a Job":                   {"batch/v1", "Job", "report", "", "batch/v1 Job report"},
		"a Job with a number":     {"batch/v1", "Job", "report-2024", "", "batch/v1 Job report-2024"},
		"a Job with a hash":       {"batch/v1", "Job", "report-a1b2c3d4", "", "batch/v1 Job report-a1b2c3d4"},
		"a Job that is a number":  {"batch/v1", "Job", "-29012345", "", "batch/v1 Job -29012345"},
		"a StatefulSet":           {"apps/v1", "StatefulSet", "db", "", "apps/v1 StatefulSet db"},
		"nobody's":                {"", "", "", "", "v1 Pod web-5d4f8c7b9"},
		"an owner without a name": {"apps/v1", "StatefulSet", "", "", "v1 Pod web-5d4f8c7b9"},
	} {
		pod := podtree.Object{"metadata": podtree.Object{
			"generateName": "web-5d4f8c7b9-", "labels": podtree.Object{"pod-template-hash": row.hash},
			"ownerReferences": []any{
				podtree.Object{"apiVersion": "v1", "kind": "Node", "name": "other"},
				podtree.Object{"apiVersion": row.version, "kind": row.kind, "name": row.owner, "controller": true},
			},
		}}
		of, have := workloadOf(pod)
		if got := of.APIVersion + " " + of.Kind + " " + have; got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

func TestAWarningIsOneShortLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one\ntwo":         "one; two",
		"tab\tand\x00zero": "tab and zero",
		"\xffbroken":       "?broken",
		"12345678901":      "123456789...",
		"123456789ü1":      "123456789...",
		"12345678ü12":      "12345678...",
		"1234567890":       "1234567890",
	} {
		if got := clip(text, 12); len(text) > 12 && got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	got := short([]string{"a\nb"})
	if diff := cmp.Diff([]string{"sidecar-cni: a; b"}, got); diff != "" {
		t.Error(diff)
	}
	if got := len(short(make([]string, maxWarnings))); got != maxWarnings {
		t.Errorf("%d of %d warnings", got, maxWarnings)
	}
}

func TestTheTimeoutIsThatOfTheClient(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{
		"?timeout=5s": 5 * time.Second, "": 10 * time.Second, "?timeout=1h": 30 * time.Second,
		"?timeout=-1s": 10 * time.Second, "?timeout=soon": 10 * time.Second,
	} {
		if got := timeout(httptest.NewRequest("POST", "/inject"+query, nil)); got != want {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}

package repair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPausesGrowAndEnd(t *testing.T) {
	t.Parallel()
	p, now := pauses{}, metav1.Now().Time
	var have []string
	for range 7 {
		p.begin("u", now)
		length := p["u"].length
		have = append(have, length.String())
		if !p.on("u", now.Add(length-1)) || p.on("u", now.Add(length)) {
			t.Errorf("a pause of %s is not as long", length)
		}
	}
	want := []string{"30s", "1m0s", "2m0s", "4m0s", "8m0s", "10m0s", "10m0s"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	p.keep(map[types.UID]Finding{"u": Missing})
	if len(p) != 1 {
		t.Error("a pod that is still missing its redirection lost its pause")
	}
	p.keep(map[types.UID]Finding{"u": Redirected})
	if p.on("u", now) || len(p) != 0 {
		t.Error("a pod that is redirected has a pause")
	}
}

package stage_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/test/stage"
)

// A stage ends with the first failure, and takes down what it built.
func TestRun(t *testing.T) {
	t.Parallel()
	var down []string
	var dir string
	err := stage.Run(t.Context(), func(s testing.TB) {
		dir = s.TempDir()
		s.Cleanup(func() {
			if s.Context().Err() != nil {
				down = append(down, "first, behind its context")
			}
		})
		s.Cleanup(func() {
			down = append(down, "second")
			s.Fatal("and at 3")
		})
		s.Fatalf("fell at %d", 2)
		down = append(down, "went on")
	})
	if diff := cmp.Diff([]string{"second", "first, behind its context"}, down); diff != "" ||
		err == nil || err.Error() != "fell at 2\nand at 3" {
		t.Errorf("%v, taken down (-want +got):\n%s", err, diff)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

package chain

import "testing"

func TestWriterOf(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		`{"plugins":[{"type":"cilium-cni"}]}`: "cilium", `{"plugins":[{"type":"aws-cni"}]}`: "aws-cni",
		`{"plugins":[{"type":"bridge"}]}`: "", "": "",
	} {
		w, known := WriterOf([]byte(file))
		if w.Name != want || known != (want != "") || known != (w.Remedy != "") {
			t.Errorf("%s: %+v, %v, want %q", file, w, known, want)
		}
	}
}

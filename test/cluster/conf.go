package cluster

import (
	"bytes"
	"embed"
	"text/template"

	corev1 "k8s.io/api/core/v1"
)

//go:embed site.sh
var siteScript string

//go:embed node.sh
var nodeScript string

//go:embed conf
var confFiles embed.FS

var confs = template.Must(template.ParseFS(confFiles, "conf/*"))

// facts are what the configuration files of nodes differ in.
type facts struct {
	Name    string
	Cgroup  string
	Pause   string // image
	DNS     string
	Subnets []string
	Taints  []corev1.Taint
	NRI     NRI
}

func (f facts) fill(name string) []byte {
	var b bytes.Buffer
	if err := confs.ExecuteTemplate(&b, name, f); err != nil {
		panic(err) // a template asks for what is not there
	}
	return b.Bytes()
}

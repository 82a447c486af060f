package inject

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

// What the converter has no doubt about the decoder takes, and needs not be asked. In doubt it is.
func TestDoubt(t *testing.T) {
	t.Parallel()
	const container = `{"spec":{"containers":[{`
	for text, want := range map[string]struct{ unknown, doubt bool }{
		container + `"name":"a","args":["x",1,true],"tty":true,"ports":[{"containerPort":80}]}]}}`:          {},
		container + `"env":[{"name":"A","value":1.5}],"livenessProbe":{"httpGet":{"port":"http"}}}]}}`:      {},
		container + `"resources":{"limits":{"cpu":1,"memory":"5Gi"}},"securityContext":{"runAsUser":1}}]}}`: {},
		container + `"name":null,"ports":null}]},"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`:  {},
		container + `"nam":"a"}]}}`:                               {unknown: true},
		container + `"tty":"true"}]}}`:                            {doubt: true},
		container + `"ports":[{"containerPort":99999999999}]}]}}`: {doubt: true},
		container + `"ports":[{"containerPort":"80"}]}]}}`:        {doubt: true},
		container + `"ports":[{"containerPort":80.5}]}]}}`:        {doubt: true},
		container + `"ports":{"containerPort":80}}]}}`:            {doubt: true},
		container + `"resources":{"limits":{"cpu":"x"}}}]}}`:      {doubt: true},
		container + `"resources":{"limits":{"cpu":{}}}}]}}`:       {doubt: true},
		container + `"livenessProbe":{"httpGet":{"port":[]}}}]}}`: {doubt: true},
		container + `"livenessProbe":{"httpGet":{"port":{}}}}]}}`: {doubt: true},
		container + `"name":["a"]}]}}`:                            {doubt: true},
		container + `"name":{"a":1}}]}}`:                          {doubt: true},
		`{"spec":[]}`:                                             {doubt: true},
		`{"spec":1}`:                                              {doubt: true},
		`{"metadata":{"creationTimestamp":"yesterday"}}`:          {doubt: true},
	} {
		tree, err := podtree.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if c := convertedPod(tree); c.unknown != want.unknown || c.doubt != want.doubt {
			t.Errorf("%s: unknown %v, doubt %v, want %+v", text, c.unknown, c.doubt, want)
		}
		checkDoubt(t, []byte(text))
	}
}

func convertedPod(tree podtree.Object) converter {
	c := converter{fields: declared(), texts: true}
	c.convert(tree, reflect.TypeFor[corev1.Pod]())
	return c
}

// checkDoubt asks the decoder where the converter does not.
func checkDoubt(t *testing.T, data []byte) {
	t.Helper()
	tree, err := podtree.Decode(data)
	if err != nil {
		return
	}
	c := convertedPod(tree)
	if c.doubt {
		return
	}
	if data, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	unknown, err := kjson.UnmarshalStrict(data, &corev1.Pod{})
	if err != nil || len(unknown) > 0 && !c.unknown {
		t.Errorf("there was no doubt, and there is %v, %v: %s", err, unknown, data)
	}
}

func FuzzDoubt(f *testing.F) {
	for seed := range uint64(8) {
		data, err := json.Marshal(podgen.Pod(rand.New(rand.NewPCG(seed, 4))))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(checkDoubt)
}

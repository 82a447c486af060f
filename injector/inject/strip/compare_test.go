package strip

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// alter calls f with each part of a value, after it was given another value than it had.
func alter(v reflect.Value, path string, f func(path string)) {
	switch special := v.Addr().Interface().(type) {
	case *netip.Prefix:
		*special = netip.MustParsePrefix("127.0.0.0/9")
	case *netip.Addr:
		*special = netip.MustParseAddr("127.0.0.9")
	default:
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				alter(v.Field(i), path+"."+v.Type().Field(i).Name, f)
			}
			return
		case reflect.Slice:
			v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), reflect.Zero(v.Type().Elem())))
			alter(v.Index(0), path, f)
			return
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.String:
			v.SetString("net9")
		default:
			v.SetUint(9)
		}
	}
	f(path)
}

// Of a policy in which everything counts, no field may differ but those that are meant to.
func TestEveryFieldOfAPolicyIsCompared(t *testing.T) {
	t.Parallel()
	whole := func() redirect.Policy {
		p := redirect.Defaults().Basis()
		p.Mode, p.DNS.Capture, p.Inbound.All, p.Groups.All = redirect.ModeTProxy, true, true, true
		p.Marks = redirect.Marks{} // or a mode without marks would differ by them
		return p
	}
	var passed []string
	n := 0
	for i := range reflect.TypeFor[redirect.Policy]().NumField() {
		would := whole()
		field := reflect.ValueOf(&would).Elem().Field(i)
		alter(field, reflect.TypeFor[redirect.Policy]().Field(i).Name, func(path string) {
			n++
			was, other := whole(), would
			relevant(&was, &other, []uint16{15020})
			if len((&command{}).differences(&was, &other)) == 0 {
				passed = append(passed, path)
			}
			would = whole() // one field at a time
		})
	}
	want := []string{"Inbound.Ports", "Outbound.ExcludeUIDs.First", "Outbound.ExcludeUIDs.Last",
		"Groups.Include", "DNS.Servers"}
	if diff := cmp.Diff(want, passed); diff != "" || n < 30 {
		t.Errorf("%d fields; not compared (-want +got):\n%s", n, diff)
	}
}

// What does not count in a policy may differ.
func TestWhatDoesNotCountMayDiffer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		was, would redirect.Policy
		same       bool
	}{
		"marks without TPROXY": {redirect.Policy{Marks: redirect.Marks{TProxy: 1}},
			redirect.Policy{}, true},
		"excluded ports of a list": {redirect.Policy{Inbound: redirect.Inbound{
			ExcludePorts: []uint16{80}}}, redirect.Policy{}, true},
		"open ports": {redirect.Policy{Inbound: redirect.Inbound{All: true}},
			redirect.Policy{Inbound: redirect.Inbound{All: true, ExcludePorts: []uint16{15020}}},
			true},
		"other ports": {redirect.Policy{Inbound: redirect.Inbound{All: true}}, redirect.Policy{
			Inbound: redirect.Inbound{All: true, ExcludePorts: []uint16{15020, 22}}}, false},
		"excluded groups of a list": {redirect.Policy{Groups: redirect.Groups{
			Exclude: []uint32{1}}}, redirect.Policy{}, true},
		"the resolver's port": {redirect.Policy{Ports: redirect.Listen{DNS: 1}}, redirect.Policy{},
			true},
		"the order of users": {
			redirect.Policy{Proxy: redirect.Identity{UIDs: []uint32{2, 1}, GIDs: []uint32{4, 3}}},
			redirect.Policy{Proxy: redirect.Identity{UIDs: []uint32{1, 2}, GIDs: []uint32{3, 4}}},
			true},
		"included ports": {redirect.Policy{Inbound: redirect.Inbound{Ports: []uint16{80}}},
			redirect.Policy{}, false},
		"included groups": {redirect.Policy{Groups: redirect.Groups{Include: []uint32{1}}},
			redirect.Policy{}, false},
	} {
		relevant(&row.was, &row.would, []uint16{15020})
		reasons := (&command{}).differences(&row.was, &row.would)
		if (len(reasons) == 0) != row.same {
			t.Errorf("%s: %s", name, strings.Join(reasons, "\n"))
		}
	}
}

// Each annotation that decides is carried over from a flag, or is no business of istio-init.
func TestEveryAnnotationIsCarriedOrAnothersBusiness(t *testing.T) {
	t.Parallel()
	known := map[string]bool{redirect.StatusAnnotation: true, "sidecar.istio.io/inject": true, keyStatusPort: true,
		keyBypass: true, keyExcludeUIDs: true, traffic + "kubevirtInterfaces": true,
		redirect.StrippedAnnotation: true}
	for _, row := range carried {
		known[row.key] = true
	}
	for _, key := range redirect.Annotations() {
		if !known[key] {
			t.Errorf("%s: no flag becomes it", key)
		}
		delete(known, key)
	}
	if len(known) > 0 {
		t.Errorf("these decide nothing: %v", known)
	}
}

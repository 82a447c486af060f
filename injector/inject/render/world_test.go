package render

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Names that must never come in, whatever sprig adds to its own list.
func TestFunctionsThatReadTheWorldAreUnknown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"ago", "date", "date_in_zone", "date_modify", "dateInZone", "dateModify", "durationRound",
		"htmlDate", "htmlDateInZone", "must_date_modify", "mustDateModify", "mustToDate", "now",
		"toDate", "unixEpoch", "expandenv", "getHostByName", "randAlpha", "randAlphaNum",
		"randAscii", "randBytes", "randInt", "randNumeric", "shuffle", "uuidv4", "bcrypt",
		"buildCustomCert", "decryptAES", "derivePassword", "encryptAES", "genCA", "genCAWithKey",
		"genPrivateKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
		"genSignedCertWithKey", "htpasswd", "call",
	} {
		_, err := Parse("sidecar", "{{ "+name+" }}", Today, nil)
		want := `template "sidecar", line 1: there is no function "` + name +
			`"; docs/inject.md lists them`
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// Each function is called with arguments that fit their types, often enough for the order of a map
// to show.
func TestFunctionsGiveTheSameAnswerTwice(t *testing.T) {
	t.Parallel()
	all, err := functionsFor(map[string]string{"REGION": "north"})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range all {
		var first string
		for i := range 20 {
			got := answer(t, f)
			if i == 0 {
				first = got
			} else if got != first {
				t.Errorf("%s: got %s, and before %s", name, got, first)
			}
		}
	}
}

// answer calls a function and returns the JSON of its result, or its mistake.
func answer(t *testing.T, f function) string {
	t.Helper()
	var args []reflect.Value
	typ := reflect.TypeOf(f.value)
	for i := range typ.NumIn() {
		in := typ.In(i)
		if typ.IsVariadic() && i == typ.NumIn()-1 {
			for range 2 {
				args = append(args, argument(in.Elem()))
			}
			continue
		}
		args = append(args, argument(in))
	}
	out, err := (&run{}).invoke(f, args)
	if err != nil {
		return err.Error()
	}
	if number, ok := reflect.TypeAssert[float64](out); ok && math.IsNaN(number) {
		return "NaN"
	}
	text, err := toJSON(out.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// argument is a value of a type; of any, a map whose order would show.
func argument(in reflect.Type) reflect.Value {
	v := reflect.New(in).Elem()
	switch in.Kind() {
	case reflect.String:
		v.SetString("b,a,c")
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Map:
		v.Set(reflect.MakeMap(in))
		for _, key := range []string{"f", "e", "d", "c", "b", "a"} {
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(key))
		}
	case reflect.Interface:
		list := []any{"c", "b", "a", map[string]any{"b": 1, "a": 2, "c": 3}}
		if reflect.TypeOf(list).AssignableTo(in) {
			v.Set(reflect.ValueOf(list))
		}
	default:
	}
	return v
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	all, err := functionsFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, f := range Functions() {
		documented = append(documented, f.Name)
	}
	slices.Sort(documented)
	if diff := cmp.Diff(sortedKeys(all.names()), documented); diff != "" {
		t.Error(diff)
	}
	for _, f := range istioFunctions {
		if f.doc.Usage == "" || f.doc.About == "" {
			t.Errorf("%s has no documentation", f.doc.Name)
		}
	}
	var names, want []string
	for _, f := range Fields() {
		names = append(names, f.Name)
	}
	for i, typ := 0, reflect.TypeFor[Data](); i < typ.NumField(); i++ {
		want = append(want, "."+typ.Field(i).Name)
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	seen := reflect.TypeFor[fields]()
	if seen.NumField() != len(want) {
		t.Errorf("templates see %d fields, Data has %d", seen.NumField(), len(want))
	}
}

package render

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// What printf yields has at most the bytes that it is reckoned with.
func TestPrintfYieldsAtMostWhatIsReckoned(t *testing.T) {
	t.Parallel()
	large := complex(-math.MaxFloat64, -math.MaxFloat64)
	values := []any{
		math.MinInt64, uint64(math.MaxUint64), -math.MaxFloat64, large, true, nil,
		time.Duration(math.MinInt64), "\x01\x02", "\xff\xfe", "é\u2028", []string(nil),
		[]any{large, []any{}, []any(nil), nil, -math.MaxFloat64}, map[string]any{"": nil, "a": large},
	}
	for _, typ := range reached() {
		switch typ.Kind() {
		case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Float64:
			values = append(values, reflect.Zero(typ).Interface())
			if enum, ok := reflect.TypeAssert[protoreflect.Enum](reflect.Zero(typ)); ok {
				for i := range enum.Descriptor().Values().Len() {
					number := enum.Descriptor().Values().Get(i).Number()
					values = append(values, enum.Type().New(number))
				}
			}
		default:
		}
	}
	for _, value := range values {
		for verb := 'A'; verb <= 'z'; verb++ {
			for _, flags := range []string{"", "+", "#", "+#", "# ", "-7", "090", "#400.400", "[1]*[1]"} {
				format := "%" + flags + string(verb)
				args := []reflect.Value{reflect.ValueOf(format), reflect.ValueOf(&value).Elem()}
				sizes, err := (&run{}).weigh(args)
				if err != nil {
					t.Fatal(err)
				}
				cost, err := costOfPrintf(arguments{args, sizes})
				most := (cost + 1) * textPiece
				got := fmt.Sprintf(format, value)
				if err == nil && len(got) > most {
					t.Errorf("%s of %T yields %d bytes, reckoned with %d: %.100s", format, value,
						len(got), most, got)
				}
			}
		}
	}
}

// A width counts, whatever type the number has, and the text that a pointer or a structure stands
// for.
func TestPrintfOfWhatPodsHave(t *testing.T) {
	t.Parallel()
	data := sample(t)
	wide, long := int64(1_000_000), strings.Repeat("x", 100_000)
	data.Spec.TerminationGracePeriodSeconds = &wide
	data.Spec.RuntimeClassName = &long
	data.ObjectMeta.Name = long
	data.Values["unsigned"] = uint32(1_000_000)
	wide300 := strings.Repeat("%[1]*[2]d", 300)
	for name, text := range map[string]string{
		"a width behind a pointer": "printf `" + wide300 + "` .Spec.TerminationGracePeriodSeconds 1",
		"an unsigned width":        "printf `" + wide300 + "` .Values.unsigned 1",
		"a text behind a pointer":  "printf `" + strings.Repeat("%[1]s", 300) + "` .Spec.RuntimeClassName",
		"the text of a structure":  "printf `" + strings.Repeat("%[1]s", 300) + "` .ObjectMeta",
	} {
		const want = "function printf: would yield over 1048576 bytes: shorten the format"
		out, err := execute(t, "{{ $x := "+text+" }}", Today, data)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %d bytes, %v, want %s", name, len(out), err, want)
		}
	}
	many := strings.Repeat(" .Spec.RuntimeClassName", 900)
	for _, text := range []string{"print" + many, "list" + many} {
		_, err := execute(t, "{{ $x := "+text+" }}", Today, data)
		if err == nil || !strings.HasSuffix(err.Error(), "takes or yields over 1048576 bytes: shorten the text") {
			t.Errorf("%.50s: got %v", text, err)
		}
	}
}

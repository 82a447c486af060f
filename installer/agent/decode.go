package agent

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// A shape says what is kept of a message in protobuf: fields by their numbers, which never change
// (generated.proto of k8s.io/api/core/v1 and of k8s.io/apimachinery). A field that is a message
// itself has a function that returns its shape, or nil if it is left out; nil keeps a field whole.
type shape map[protowire.Number]func(message []byte) shape

var (
	podFields = shape{
		1: always(podMetadata),
		2: specOf,
		3: always(shape{1: nil, 6: nil, 12: nil}), // status: phase, podIP, podIPs
	}
	podMetadata = shape{
		1: nil, 3: nil, 5: nil, 6: nil, // name, namespace, uid, resourceVersion
		9:  nil, // deletionTimestamp
		11: named(decisiveLabels),
		// Of a watch that begins with a list one annotation marks the end of it.
		12: named(append(slices.Clone(decisiveAnnotations), metav1.InitialEventsAnnotationKey)),
		13: nil, // ownerReferences
	}
	podSpec = shape{
		containers: container, initContainers: container,
		3: nil, 10: nil, 11: nil, 29: nil, // restartPolicy, nodeName, hostNetwork, runtimeClassName
		14: always(shape{2: nil, 6: nil}), // securityContext: runAsUser, runAsGroup
	}
	proxyFields = shape{
		1: nil, 4: nil, 24: nil, // name, args, restartPolicy
		7:  named(decisiveVariables),
		15: always(userFields),
	}
	otherFields = shape{1: nil, 15: always(userFields), 24: nil}
	userFields  = shape{4: nil, 8: nil} // runAsUser, runAsGroup of a container

	// envelopes are what pods come in, by the kind that is written on them.
	envelopes = map[string]shape{
		"Pod":     {1: nil, 2: always(podFields), 3: nil, 4: nil},
		"PodList": {1: nil, 2: always(shape{1: nil, 2: always(podFields)}), 3: nil, 4: nil},
	}
)

// magic begins an envelope (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
const magic = "k8s\x00"

func always(s shape) func([]byte) shape { return func([]byte) shape { return s } }

// The numbers of a pod's containers.
const (
	containers     = 2
	initContainers = 20
)

// specOf leaves the containers out of a pod that has more than strip would keep: in Kubernetes'
// types they take thirty times what they take here.
func specOf(message []byte) shape {
	count := 0
	for rest := message; len(rest) > 0; {
		number, _, behind, err := next(rest)
		if err != nil {
			break // whoever cuts the message says so
		}
		if number == containers || number == initContainers {
			count++
		}
		rest = behind
	}
	if count <= containersMost/containerCost {
		return podSpec
	}
	without := maps.Clone(podSpec)
	delete(without, containers)
	delete(without, initContainers)
	return without
}

func container(message []byte) shape {
	if string(field(message, 1)) == redirect.ProxyContainer {
		return proxyFields
	}
	return otherFields
}

// named keeps a message whose first field, a name or the key of a map, is one of names.
func named(names []string) func([]byte) shape {
	return func(message []byte) shape {
		if slices.Contains(names, string(field(message, 1))) {
			return shape{1: nil, 2: nil, 3: nil}
		}
		return nil
	}
}

// next splits the first field off a message.
func next(message []byte) (number protowire.Number, value, rest []byte, err error) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 {
		return 0, nil, nil, protowire.ParseError(tag)
	}
	length := protowire.ConsumeFieldValue(number, kind, message[tag:])
	if length < 0 {
		return 0, nil, nil, protowire.ParseError(length)
	}
	value, rest = message[:tag+length], message[tag+length:]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value[tag:])
	}
	return number, value, rest, nil
}

// field returns the last field of a number, which is the one that counts.
func field(message []byte, wanted protowire.Number) []byte {
	var found []byte
	for len(message) > 0 {
		number, value, rest, err := next(message)
		if err != nil {
			return nil // whoever cuts the message says so
		}
		if number == wanted {
			found = value
		}
		message = rest
	}
	return found
}

// cut appends what is kept of a message.
func (s shape) cut(to, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, value, rest, err := next(message)
		if err != nil {
			return nil, err
		}
		whole := message[:len(message)-len(rest)]
		message = rest
		choose, kept := s[number]
		if kept && choose == nil {
			to = append(to, whole...)
		}
		if choose == nil {
			continue
		}
		inner := choose(value)
		if inner == nil {
			continue
		}
		part, err := inner.cut(nil, value)
		if err != nil {
			return nil, err
		}
		to = protowire.AppendTag(to, number, protowire.BytesType)
		to = protowire.AppendBytes(to, part)
	}
	return to, nil
}

// A podDecoder reads of pods in protobuf only what reduce keeps. In Kubernetes' types a pod of
// 1.5 MB can take twenty times as much memory.
type podDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (d podDecoder) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(data) > len(magic) && string(data[:len(magic)]) == magic {
		message := data[len(magic):]
		if s, ok := envelopes[string(field(field(message, 1), 2))]; ok { // its kind
			reduced, err := s.cut([]byte(magic), message)
			if err != nil {
				return nil, nil, err
			}
			data = reduced
		}
	}
	return d.Serializer.Decode(data, defaults, into)
}

// podSerializers have a podDecoder for what is said in protobuf.
type podSerializers struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s podSerializers) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		if infos[i].MediaType == runtime.ContentTypeProtobuf {
			infos[i].Serializer = podDecoder{infos[i].Serializer}
		}
	}
	return infos
}

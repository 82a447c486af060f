package apiserver

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An object is what the server keeps. It is replaced, never changed.
type object interface {
	metav1.Object
	runtime.Object
}

// A collection is all objects of a kind, by namespace and name.
type collection struct {
	resource schema.GroupResource
	version  schema.GroupVersion
	kind     schema.GroupKind
	objects  map[string]object
}

func newCollection(in schema.GroupVersion, resource, kind string) *collection {
	return &collection{in.WithResource(resource).GroupResource(), in,
		in.WithKind(kind).GroupKind(), map[string]object{}}
}

// newObject returns an empty object of the collection's kind.
func (c *collection) newObject() object {
	o, err := known.New(c.version.WithKind(c.kind.Kind))
	if err != nil {
		panic(err) // of ours: a collection is of what is known
	}
	return o.(object)
}

// A change is what happened to an object: one that came has no before, one that went has no after.
type change struct {
	version       int
	of            *collection
	before, after object
}

// A history is what a watch can be told.
type history struct {
	version int // of the last change
	oldest  int // a watch from before it has expired
	changes []change
	changed chan struct{} // closed by the next change
}

func key(namespace, name string) string { return namespace + "/" + name }

// put keeps an object in place of another of its name. With nil for an object the other goes.
func (s *Server) put(c *collection, name string, o object) {
	s.history.version++
	before := c.objects[name]
	if o != nil {
		o = o.DeepCopyObject().(object)
		o.SetResourceVersion(strconv.Itoa(s.history.version))
		c.objects[name] = o
	} else {
		delete(c.objects, name)
	}
	s.history.changes = append(s.history.changes, change{s.history.version, c, before, o})
	close(s.history.changed)
	s.history.changed = make(chan struct{})
}

// get returns an object, or an error as the real server puts it.
func (c *collection) get(namespace, name string) (object, *apierrors.StatusError) {
	o, ok := c.objects[key(namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(c.resource, name)
	}
	return o, nil
}

// list returns the objects that are selected, in the order of their names.
func (c *collection) list(sel selection) []object {
	var all []object
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[name]; sel.has(o) {
			all = append(all, o)
		}
	}
	return all
}

// Put makes pods known, in place of others of their names.
func (s *Server) Put(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range pods {
		s.put(s.pods, key(pod.Namespace, pod.Name), pod)
	}
}

// Remove makes pods unknown.
func (s *Server) Remove(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range pods {
		s.put(s.pods, key(pod.Namespace, pod.Name), nil)
	}
}

// PutNode makes a node known, in place of another of its name.
func (s *Server) PutNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(s.nodes, key("", node.Name), node)
}

// PutHandler makes a runtime class with that handler known, in place of another of its name.
func (s *Server) PutHandler(class, handler string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(s.classes, key("", class),
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Handler: handler})
}

// Pod returns a pod as it is now, nil if there is none.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, _ := s.pods.objects[key(namespace, name)].(*corev1.Pod)
	return pod
}

// Node returns a node as it is now, nil if there is none.
func (s *Server) Node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, _ := s.nodes.objects[key("", name)].(*corev1.Node)
	return node
}

// Events returns the Events as they are now, in the order of their namespaces and names.
func (s *Server) Events() []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []*corev1.Event
	for _, o := range s.events.list(selection{}) {
		events = append(events, o.(*corev1.Event))
	}
	return events
}

// ForgetEvents makes the Events go, as those of an hour ago do.
func (s *Server) ForgetEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Collect(maps.Keys(s.events.objects)) {
		s.put(s.events, name, nil)
	}
}

// A selection says which objects are meant. The zero one means all.
type selection struct {
	namespace string
	fields    fields.Selector
	labels    labels.Selector
}

func (sel selection) has(o object) bool {
	switch {
	case o == nil, sel.namespace != "" && sel.namespace != o.GetNamespace():
		return false
	case sel.labels != nil && !sel.labels.Matches(labels.Set(o.GetLabels())):
		return false
	case sel.fields == nil:
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["status.phase"] = string(o.Status.Phase)
	case *corev1.Event:
		set["involvedObject.name"] = o.InvolvedObject.Name
		set["involvedObject.uid"] = string(o.InvolvedObject.UID)
	}
	return sel.fields.Matches(set)
}

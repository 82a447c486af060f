package compare

// Purpose is a kind of difference from istio-init that is on purpose.
type Purpose struct {
	Reason string                // the end of a sentence
	About  func(Difference) bool // whether a difference is of the kind; its side A is istio-init
}

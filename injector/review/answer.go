package review

import "net/http"

// The outcomes, a closed list.
const (
	injected  = "injected"
	stripped  = "stripped"
	unchanged = "unchanged"
	left      = "left"      // asked for, but istio-init had to stay
	denied    = "denied"    // to be injected, but it cannot be
	malformed = "malformed" // no request that could be answered
	failed    = "error"     // nothing wrong with the request
)

// The reasons beside inject.Reasons: with them, a closed list.
const (
	notAPod         = "not_a_new_pod"
	noInit          = "no_init_container"
	notInjected     = "not_injected" // it has no status annotation: istio-init is somebody else's
	initRemoved     = "init_container"
	validationMoved = "validation_restored"
	refused         = "refused"
	mistake         = "mistake"        // ours
	mistakeOfPod    = "mistake_of_pod" // it has to be injected, and cannot be

	badContentType = "content_type"
	badSize        = "size"
	badBody        = "body"
	badVersion     = "version"
	noRequest      = "no_request"
	noObject       = "no_object"

	noConfiguration = "no_configuration"
	busy            = "busy"
)

// answer is what is said to a request.
type answer struct {
	outcome, reason string

	patch    []byte   // nil: the pod stays as it is
	warnings []string // for whoever creates the pod, of any length
	denial   string   // why the pod must not be created; "": it may be

	status  int    // of HTTP; 0: 200, with a review
	problem string // a sentence, with status
	err     error  // for the log, which has it for mistakes that are ours
}

// refuse is an answer in HTTP's terms to what cannot be answered otherwise.
func refuse(status int, reason, problem string) *answer {
	return &answer{outcome: malformed, status: status, reason: reason, problem: problem}
}

// fail is an answer that leaves it to the failurePolicy of the webhook what becomes of the pod.
func fail(status int, reason, problem string) *answer {
	return &answer{outcome: failed, status: status, reason: reason, problem: problem}
}

func stay(reason string, warnings ...string) *answer {
	return &answer{outcome: unchanged, reason: reason, warnings: warnings}
}

// brokenBy is the answer to a request at which a mistake of ours showed.
func brokenBy(err error) *answer {
	a := fail(http.StatusInternalServerError, mistake,
		"sidecar-cni-injector made a mistake at this pod; its log says which")
	a.err = err
	return a
}

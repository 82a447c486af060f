package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// Why is why a request came to nothing, each part fit for a line.
type Why struct {
	What   string // what happened
	Remedy string // what to do; "" if there is nothing
	Cause  string // in the words of whoever said it; "" where they add nothing
}

// String is all of it.
func (w Why) String() string {
	text := w.What
	if w.Remedy != "" {
		text += "; " + w.Remedy
	}
	if w.Cause != "" {
		text += ": " + w.Cause
	}
	return text
}

// WhyNot says why a request to a server came to nothing that takes a right, as "list for pods".
func WhyNot(err error, server *url.URL, right string) Why {
	switch {
	case apierrors.IsForbidden(err):
		return Why{"it is forbidden", "have a role bound to you with the verb " + right, Cause(err)}
	case apierrors.IsUnauthorized(err):
		return Why{What: fmt.Sprintf("API server %s does not accept the credentials", server.Host),
			Remedy: "log in again, or choose another context of the kubeconfig"}
	case isStatus(err):
		return Why{fmt.Sprintf("API server %s did not answer with it", server.Host),
			"try again, or ask who runs it", Cause(err)}
	case errors.Is(err, ErrAnswer):
		return Why{What: foreign.Line(err.Error()),
			Remedy: fmt.Sprintf("is there another server at %s?", server.Host)}
	case errors.Is(err, ErrRedirect):
		return Why{What: Cause(err),
			Remedy: fmt.Sprintf("is there another server at %s?", server.Host)}
	case errors.Is(err, ErrName):
		return Why{What: foreign.Line(err.Error())}
	case errors.Is(err, context.Canceled):
		return Why{What: "interrupted"}
	case errors.Is(err, context.DeadlineExceeded):
		return Why{What: fmt.Sprintf("API server %s did not answer in time", server.Host),
			Remedy: "check the network, and whether kubectl cluster-info gets an answer"}
	}
	return Why{fmt.Sprintf("API server %s not reached", server.Host),
		"check the kubeconfig's context and the network, as by kubectl cluster-info", Cause(err)}
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest
}

// Cause is what is wrong without the request, which is known, in one line.
func Cause(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return foreign.Line(err.Error())
}

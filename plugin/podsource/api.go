package podsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func (s Sources) askAPI(ctx context.Context, ref Ref) answer {
	a, err := loadAccess(s.Kubeconfig)
	if err != nil {
		return answer{verdict: misconfigured, err: err, remedy: credentialRemedy}
	}
	client, err := a.client(s.dial)
	if err != nil {
		return answer{verdict: misconfigured, err: fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err), remedy: credentialRemedy}
	}
	pod := &corev1.Pod{}
	// klog would write to stderr what the error says already.
	err = a.authorize(client.Get()).Namespace(ref.Namespace).Resource("pods").Name(ref.Name).
		Do(klog.NewContext(ctx, klog.Logger{})).Into(pod)
	result := ref.match(pod)
	if err != nil {
		result = a.judge(ctx, err)
	}
	if result.err != nil {
		result.err = fmt.Errorf("%s: %w", a.server, result.err)
	}
	if result.remedy == "" {
		result.remedy = fmt.Sprintf(serverRemedy, a.server, a.credential.kubeconfig)
	}
	return result
}

// client returns a client for core/v1 that leaves repeating to us. It speaks protobuf: the first JSON of a pod takes a
// process 2.5 ms, the first protobuf 0.15. Each try is a new connection, and so may reach another replica.
func (a access) client(dial Dial) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &metav1.Status{})
	config := &rest.Config{
		Host:           a.server,
		APIPath:        "/api",
		QPS:            -1,
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &corev1.SchemeGroupVersion,
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
			AcceptContentTypes:   runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	return rest.RESTClientForConfigAndClient(config, &http.Client{
		Transport: &http.Transport{
			DialContext:        dial,
			TLSClientConfig:    a.tls,
			DisableKeepAlives:  true,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
}

func (a access) authorize(req *rest.Request) *rest.Request {
	req.MaxRetries(0).SetHeader("User-Agent", userAgent)
	if a.credential.token != "" {
		req.SetHeader("Authorization", "Bearer "+a.credential.token)
	}
	return req
}

// judge makes a verdict of what client-go calls an error.
func (a access) judge(ctx context.Context, err error) answer {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return a.unheard(ctx, err)
	}
	status := said.Status()
	words := fmt.Errorf("%d %s: %s", status.Code, http.StatusText(int(status.Code)), brief(status.Message))
	switch code := status.Code; {
	case code == http.StatusUnauthorized:
		return answer{verdict: unauthorized, err: fmt.Errorf("%w (%v)", words, a.credential), remedy: credentialRemedy}
	case code == http.StatusForbidden:
		remedy := fmt.Sprintf(rightRemedy, a.credential.holder())
		return answer{verdict: forbidden, err: fmt.Errorf("%w (%v)", words, a.credential), remedy: remedy}
	case code == http.StatusNotFound && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return answer{verdict: absent, err: errAbsent}
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return answer{verdict: undecided, err: words, remedy: overloadRemedy, after: time.Duration(seconds) * time.Second}
	default:
		return answer{verdict: rejected, err: words}
	}
}

// unheard is about a try that brought no answer, or none that could be read.
func (a access) unheard(ctx context.Context, err error) answer {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		err = fmt.Errorf("its certificate does not verify with %s: %w", a.ca, untrusted.Err)
		return answer{verdict: away, err: err, remedy: a.trustRemedy(untrusted.Err)}
	}
	result := silence(ctx, err)
	result.remedy = fmt.Sprintf(reachRemedy, a.server)
	return result
}

func (a access) trustRemedy(err error) string {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf(serverNameRemedy, a.credential.kubeconfig)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return clockRemedy
	default:
		return fmt.Sprintf(caRemedy, a.ca)
	}
}

package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// OwnPod is the agent's own pod.
type OwnPod struct {
	Client *rest.RESTClient // of Server.Client

	// A UID of "" is any.
	Namespace, Name, UID string
}

// Created is when the pod was created, by the API server's clock.
func (p OwnPod) Created(ctx context.Context) (time.Time, error) {
	data, err := p.Client.Get().Namespace(p.Namespace).Resource("pods").Name(p.Name).
		SetHeader("Accept", "application/json").MaxRetries(0).Do(ctx).Raw()
	var pod struct {
		Metadata struct {
			UID               string    `json:"uid"`
			CreationTimestamp time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if err == nil {
		err = json.Unmarshal(data, &pod)
	}
	if err == nil && p.UID != "" && pod.Metadata.UID != p.UID {
		err = fmt.Errorf("its uid is %q, want %q", pod.Metadata.UID, p.UID)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pod.Metadata.CreationTimestamp, nil
}

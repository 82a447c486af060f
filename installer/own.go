package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// ownPod is the agent's own pod.
type ownPod struct {
	client               *rest.RESTClient
	namespace, name, uid string
}

// created is when the pod was created, by the API server's clock.
func (p ownPod) created(ctx context.Context) (time.Time, error) {
	data, err := p.client.Get().Namespace(p.namespace).Resource("pods").Name(p.name).
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
	if err == nil && p.uid != "" && pod.Metadata.UID != p.uid {
		err = fmt.Errorf("its uid is %q, want %q", pod.Metadata.UID, p.uid)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read pod %s/%s: %w", p.namespace, p.name, err)
	}
	return pod.Metadata.CreationTimestamp, nil
}

{{/* What all policies have in common: whom they are about, and where their node's name comes from. */}}
{{- define "sidecar-cni.policy" -}}
failurePolicy: Fail
matchConditions:
- name: the-agent
  expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:sidecar-cni'
variables:
# The node that the token was issued for: a claim that kubelets cannot choose.
- name: node
  expression: >-
    has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra
    ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''
{{- end -}}

{{/* Every field of the object's part .at is what it was, but those in .but. New versions' fields count as well. */}}
{{- define "sidecar-cni.kept" -}}
dyn(object.{{ .at }}).all(k, k in {{ .but | toJson | replace "\"" "'" }}
|| k in dyn(oldObject.{{ .at }}) && dyn(object.{{ .at }})[k] == dyn(oldObject.{{ .at }})[k])
&& dyn(oldObject.{{ .at }}).all(k, k in {{ .but | toJson | replace "\"" "'" }} || k in dyn(object.{{ .at }}))
{{- end -}}

{{- define "sidecar-cni.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "sidecar-cni.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}

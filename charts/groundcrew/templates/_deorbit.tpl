{{/* Whether the cluster has something in OpenStack. */}}
{{- define "groundcrew.deorbit.openstack" -}}
{{- if or .controller.ccmCluster .controller.csiCluster .controller.routers -}}true{{- end -}}
{{- end -}}

{{- define "groundcrew.deorbit.args" -}}
{{- if include "groundcrew.deorbit.openstack" . }}
- --cloud-conf=/etc/groundcrew/openstack/{{ .root.Values.openstack.key }}
{{- end }}
{{- with .controller.ccmCluster }}
- {{ printf "--ccm-cluster=%s" . | quote }}
{{- end }}
{{- with .controller.csiCluster }}
- {{ printf "--csi-cluster=%s" . | quote }}
{{- end }}
{{- with .controller.routers }}
- --router={{ join "," . }}
- --pod-cidr={{ join "," $.controller.podCidrs }}
{{- end }}
{{- with .controller.cloudLacks }}
- --cloud-lacks={{ join "," . }}
{{- end }}
{{- if .controller.ovn }}
{{ include "groundcrew.ovn.connection" . }}
{{- end }}
{{- if .controller.cloudsigma }}
- --cloudsigma
{{- end }}
{{- range $whose, $lease := .controller.leases }}
- --{{ $whose }}-lease={{ $lease }}
{{- end }}
{{- end -}}

{{/* The account is that of cloudsigma-ccm, whether that one is enabled or not. */}}
{{- define "groundcrew.deorbit.env" -}}
{{- if .controller.cloudsigma -}}
{{- $it := index .root.Values.controllers "cloudsigma-ccm" -}}
{{- with $it.region }}
- {name: CLOUDSIGMA_REGION, value: {{ . | quote }}}
{{- end }}
{{- with $it.apiUrl }}
- {name: CLOUDSIGMA_API_URL, value: {{ . | quote }}}
{{- end }}
{{- if $it.username }}
- {name: CLOUDSIGMA_USERNAME, value: {{ $it.username | quote }}}
- {name: CLOUDSIGMA_PASSWORD_FILE, value: /etc/groundcrew/cloudsigma/password}
{{- else }}
- {name: CLOUDSIGMA_USER_EMAIL, value: {{ $it.userEmail | quote }}}
- {name: CLOUDSIGMA_OAUTH_URL, value: {{ $it.oauthUrl | quote }}}
- {name: CLOUDSIGMA_CLIENT_ID, value: {{ $it.clientId | quote }}}
- {name: CLOUDSIGMA_CLIENT_SECRET_FILE, value: /etc/groundcrew/cloudsigma/client-secret}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "groundcrew.deorbit.secrets" -}}
{{- if include "groundcrew.deorbit.openstack" . }}
{{ include "groundcrew.openstack.secrets" . }}
{{- end }}
{{- if .controller.ovn }}
{{ include "groundcrew.ovn.secrets" . }}
{{- end }}
{{- if .controller.cloudsigma }}
- {name: cloudsigma, secret: {{ (index .root.Values.controllers "cloudsigma-ccm").existingSecret }}}
{{- end }}
{{- end -}}

{{- define "groundcrew.deorbit.egress" -}}
{{- $ports := list -}}
{{- if include "groundcrew.deorbit.openstack" . -}}
{{- $ports = concat $ports (include "groundcrew.openstack.egress" . | fromYamlArray) -}}
{{- end -}}
{{- if .controller.ovn -}}
{{- $ports = concat $ports (include "groundcrew.ovn.egress" . | fromYamlArray) -}}
{{- end -}}
{{- if .controller.cloudsigma -}}
{{- $account := dict "root" .root "controller" (index .root.Values.controllers "cloudsigma-ccm") -}}
{{- $ports = concat $ports (include "groundcrew.cloudsigma-ccm.egress" $account | fromYamlArray) -}}
{{- end -}}
{{- uniq $ports | toYaml -}}
{{- end -}}

{{- define "groundcrew.deorbit.roles" -}}
# The report outlives the Deorbit that it is about. Its name has the Deorbit's in it.
- namespace: {{ .root.Release.Namespace }}
  suffix: -report
  rules:
    - apiGroups: [""]
      resources: [configmaps]
      verbs: [create, patch]
# Whether new claims are refused is asked with one that is never made.
- namespace: default
  suffix: -freeze
  rules:
    - apiGroups: [""]
      resources: [persistentvolumeclaims]
      verbs: [create]
# Whether the controllers live that clean up.
{{- range $whose, $lease := .controller.leases }}
- namespace: {{ splitList "/" $lease | first }}
  suffix: -{{ $whose }}
  rules:
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      resourceNames: [{{ splitList "/" $lease | last }}]
      verbs: [get]
{{- end }}
{{- end -}}

{{- define "groundcrew.deorbit.rules" -}}
- apiGroups: [groundcrew.dev]
  resources: [deorbits]
  verbs: [get, list, watch, patch]
- apiGroups: [groundcrew.dev]
  resources: [deorbits/status]
  verbs: [update]
# A Deorbit is confirmed by its uid.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
# Meanwhile nobody makes new things. The policy is applied, so that its name is known when it is created.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  resourceNames: [groundcrew-deorbit, groundcrew-deorbit-probe]
  verbs: [create, patch, delete]
# What would make new volumes is scaled to zero or suspended.
- apiGroups: [apps]
  resources: [deployments, statefulsets, replicasets]
  verbs: [list, patch]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [list, patch]
# What goes.
- apiGroups: [""]
  resources: [pods, persistentvolumeclaims]
  verbs: [list, delete]
# An Ingress is told first if its floating address stays.
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [list, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways]
  verbs: [list, delete]
# What goes, and whose finalizers are taken off when the cloud says that what they stand for is gone.
- apiGroups: [""]
  resources: [services, persistentvolumes]
  verbs: [list, patch, delete]
- apiGroups: [storage.k8s.io]
  resources: [volumeattachments]
  verbs: [list, patch, delete]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots, volumesnapshotcontents]
  verbs: [list, patch, delete]
# Whose volumes they are.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [list]
{{- if .controller.routers }}
# Routes to the pods of Nodes.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end }}
{{- if or .controller.ovn .controller.cloudsigma }}
# Whether a Service lives that has something outside.
- apiGroups: [""]
  resources: [services]
  verbs: [get]
{{- end }}
{{- if .controller.ovn }}
# Addresses that Services had.
- apiGroups: [kube-dc.com]
  resources: [eips]
  verbs: [get, list, patch, delete]
- apiGroups: [kubeovn.io]
  resources: [ovn-eips]
  verbs: [get, list, patch, delete]
{{- end }}
{{- if .controller.cloudsigma }}
# Whether a node still answers for an address.
- apiGroups: [groundcrew.dev]
  resources: [floatingips]
  verbs: [get]
{{- end }}
{{ include "groundcrew.rules.events" . }}
{{- end -}}

{{/* What no schema can say: values that do not go together. Each names the path and what to do. */}}
{{- define "groundcrew.check" -}}
{{- $values := .Values -}}
{{- $of := $values.controllers -}}
{{- $ovn := index $of "ovn-lb" -}}
{{- $watcher := index $of "lb-watcher" -}}
{{- $ccm := index $of "cloudsigma-ccm" -}}
{{- $agent := index $of "node-agent" -}}
{{- $probe := index $of "net-probe" -}}
{{- $enabled := list -}}
{{- range $name, $controller := $of -}}
{{- if $controller.enabled -}}{{- $enabled = append $enabled $name -}}{{- end -}}
{{- end -}}
{{- if not $enabled -}}
{{- fail "controllers: all of them are off; set controllers.<name>.enabled for those that you want" -}}
{{- end -}}
{{- if not $values.image.repository -}}
{{- fail "image.repository: say where your image is; `make image` builds one" -}}
{{- end -}}

{{- if and $ovn.enabled $ovn.takeClassless $ccm.enabled $ccm.takeClassless (not $ccm.nodesOnly) -}}
{{- fail "controllers.ovn-lb.takeClassless and controllers.cloudsigma-ccm.takeClassless: both would serve Services without a loadBalancerClass; set one of them to false" -}}
{{- end -}}
{{- range $name := list "ovn-lb" "lb-watcher" -}}
{{- if (index $of $name).enabled -}}
{{- if not $values.ovn.northbound -}}
{{- fail (printf "ovn.northbound: controllers.%s needs it; for example [\"tcp:192.0.2.10:6641\"]" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $index, $endpoint := $values.ovn.northbound -}}
{{- if and (hasPrefix "ssl:" $endpoint) (not $values.ovn.tls.existingSecret) -}}
{{- fail (printf "ovn.tls.existingSecret: ovn.northbound[%d] is %s, which needs the certificates in a Secret" $index $endpoint) -}}
{{- end -}}
{{- end -}}
{{- if and $ovn.enabled (eq $ovn.addressSource "kube-ovn") (not $values.kubeOvn.enabled) -}}
{{- fail "controllers.ovn-lb.addressSource: it is kube-ovn, but kubeOvn.enabled is false" -}}
{{- end -}}

{{- if or $ccm.enabled (and $of.deorbit.enabled $of.deorbit.cloudsigma) -}}
{{- if not (or $ccm.region $ccm.apiUrl) -}}
{{- fail "controllers.cloudsigma-ccm.region: say which location, such as zrh (or set apiUrl)" -}}
{{- end -}}
{{- if not $ccm.existingSecret -}}
{{- fail "controllers.cloudsigma-ccm.existingSecret: name the Secret with the key password or client-secret" -}}
{{- end -}}
{{- if and $ccm.username $ccm.userEmail -}}
{{- fail "controllers.cloudsigma-ccm.username and userEmail: set one of them" -}}
{{- end -}}
{{- if not (or $ccm.username (and $ccm.userEmail $ccm.oauthUrl $ccm.clientId)) -}}
{{- fail "controllers.cloudsigma-ccm: set username, or userEmail with oauthUrl and clientId" -}}
{{- end -}}
{{- end -}}
{{- if $ccm.enabled -}}
{{- if not (or $agent.enabled $ccm.nodesOnly $values.kubeconfig.existingSecret) -}}
{{- fail "controllers.node-agent.enabled: cloudsigma-ccm needs the agents, which hold its addresses; enable them, or set controllers.cloudsigma-ccm.nodesOnly" -}}
{{- end -}}
{{- if and $ccm.csiToken (not (and $ccm.userEmail $ccm.region)) -}}
{{- fail "controllers.cloudsigma-ccm.csiToken: it needs userEmail and region: a password has no token" -}}
{{- end -}}
{{- end -}}

{{- range $name := list "routegc" "flight" -}}
{{- $it := index $of $name -}}
{{- if $it.enabled -}}
{{- if not $it.podCidrs -}}
{{- fail (printf "controllers.%s.podCidrs: say which ranges the pods have; nothing outside them is touched" $name) -}}
{{- end -}}
{{- if not $values.openstack.existingSecret -}}
{{- fail (printf "openstack.existingSecret: controllers.%s needs the Secret with the cloud.conf" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $of.flight.deleteServers (ne $of.flight.nodes "repair") -}}
{{- fail "controllers.flight.deleteServers: it has no effect unless controllers.flight.nodes is repair" -}}
{{- end -}}

{{- if $of.deorbit.enabled -}}
{{- $openstack := or $of.deorbit.ccmCluster $of.deorbit.csiCluster $of.deorbit.routers -}}
{{- if not (or $openstack $of.deorbit.ovn $of.deorbit.cloudsigma) -}}
{{- fail "controllers.deorbit: say what the cluster has outside: ccmCluster, csiCluster, routers, ovn or cloudsigma" -}}
{{- end -}}
{{- if and $of.deorbit.ovn (not $values.ovn.northbound) -}}
{{- fail "ovn.northbound: controllers.deorbit.ovn needs it; for example [\"tcp:192.0.2.10:6641\"]" -}}
{{- end -}}
{{- if and $of.deorbit.routers (not $of.deorbit.podCidrs) -}}
{{- fail "controllers.deorbit.podCidrs: say which ranges the pods have; no route outside them is touched" -}}
{{- end -}}
{{- if and $openstack (not $values.openstack.existingSecret) -}}
{{- fail "openstack.existingSecret: controllers.deorbit needs the Secret with the cloud.conf" -}}
{{- end -}}
{{- end -}}
{{- if and $probe.enabled (eq $probe.namespace .Release.Namespace) -}}
{{- fail "controllers.net-probe.namespace: it is the release's own, where a probe could take the Lease of a leader; name another" -}}
{{- end -}}

{{- if and $agent.enabled $values.kubeconfig.existingSecret -}}
{{- fail "controllers.node-agent.enabled: an agent works on the node that it runs on, so that kubeconfig.existingSecret cannot name another cluster; install the agents there, with a release of their own" -}}
{{- end -}}
{{- if and $probe.enabled $values.kubeconfig.existingSecret -}}
{{- fail "controllers.net-probe.enabled: a probe works on the pod network that it runs on, so that kubeconfig.existingSecret cannot name another cluster" -}}
{{- end -}}
{{- range $label, $_ := $values.podLabels -}}
{{- if regexMatch "^app\\.kubernetes\\.io/(name|instance|component|part-of)$" $label -}}
{{- fail (printf "podLabels: pods are known by %s, which is the chart's to give; call yours otherwise" $label) -}}
{{- end -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range .rules -}}{{- $alerts = append $alerts .alert -}}{{- end -}}
{{- end -}}
{{- $named := dict "disabledAlerts" $values.prometheus.prometheusRule.disabledAlerts "overrides" (keys (default dict $values.prometheus.prometheusRule.overrides)) -}}
{{- range $value, $names := $named -}}
{{- range $names -}}
{{- if not (has . $alerts) -}}
{{- fail (printf "prometheus.prometheusRule.%s: no alert is called %s; they are %s" $value . ($alerts | uniq | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $controller := $of -}}
{{- range $controller.extraVolumes -}}
{{- if has .name (list "cloudsigma" "kubeconfig" "openstack" "ovn-tls") -}}
{{- fail (printf "controllers.%s.extraVolumes: the chart has a volume called %s of its own; call yours otherwise" $name .name) -}}
{{- end -}}
{{- end -}}
{{- range $controller.extraContainers -}}
{{- if eq .name $name -}}
{{- fail (printf "controllers.%s.extraContainers: the controller itself is called %s; call yours otherwise" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.prometheus.serviceMonitor.enabled $values.prometheus.podMonitor.enabled -}}
{{- fail "prometheus.serviceMonitor.enabled and prometheus.podMonitor.enabled: each pod would be scraped twice; set one of them" -}}
{{- end -}}
{{- end -}}

{{- define "pontoon.name" -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "pontoon.labels" -}}
app.kubernetes.io/name: pontoon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "pontoon.selector" -}}
app.kubernetes.io/name: pontoon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pontoon.secret" -}}
{{- .Values.secret.existing | default (include "pontoon.name" .) -}}
{{- end -}}

{{/* The variables that come from the Secret. */}}
{{- define "pontoon.secrets" -}}
["MCPO_API_KEY", "MCPO_API_KEYS", "MCPO_OWUI_JWT_SECRET", "MCPO_LINK_SECRET", "MCPO_SESSION_SECRET"]
{{- end -}}

{{/* "true" when nginx stands before the bridges. */}}
{{- define "pontoon.routed" -}}
{{- if kindIs "bool" .Values.router.enabled -}}
{{- .Values.router.enabled -}}
{{- else -}}
{{- gt (int .Values.replicas) 1 -}}
{{- end -}}
{{- end -}}

{{/* What cannot work is refused before anything is made. */}}
{{- define "pontoon.check" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- if and (not .Values.jobs.size) (not .Values.jobs.existingClaim) -}}
{{- fail "replicas is more than 1, so the bridges must share the generated files: set jobs.size (with jobs.accessMode ReadWriteMany) or jobs.existingClaim" -}}
{{- end -}}
{{- if and (not .Values.jobs.existingClaim) (ne .Values.jobs.accessMode "ReadWriteMany") -}}
{{- fail "replicas is more than 1, so jobs.accessMode must be ReadWriteMany" -}}
{{- end -}}
{{- if ne (include "pontoon.routed" .) "true" -}}
{{- fail "replicas is more than 1, so router.enabled must not be false: nothing else keeps a conversation with its bridge" -}}
{{- end -}}
{{- if not .Values.trustedProxies -}}
{{- fail "replicas is more than 1, so nginx stands before the bridges: set trustedProxies to the network of the pods, or addresses and identities are not believed" -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.secret.existing .Values.secret.apiKey .Values.secret.apiKeys) -}}
{{- fail "set secret.existing, secret.apiKey or secret.apiKeys: without a key the bridge refuses to listen" -}}
{{- end -}}
{{- range include "pontoon.secrets" . | fromJsonArray -}}
{{- if hasKey $.Values.settings . -}}
{{- fail (printf "settings.%s would stand in clear: it belongs into the Secret, see the values of secret" .) -}}
{{- end -}}
{{- end -}}
{{- range list "MCPO_LISTEN" "MCPO_CONFIG_FILE" "MCPO_JOBS_DIR" "MCPO_STATE_DIR" "MCPO_LOG_DIR" "MCPO_ALLOWED_HOSTS" "MCPO_TRUSTED_PROXIES" -}}
{{- if hasKey $.Values.settings . -}}
{{- fail (printf "settings.%s: the chart sets it itself; for hosts and proxies there are allowedHosts and trustedProxies" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

# The images: of the agent, and of sidecarctl alone (--target sidecarctl). Their programs are static and built before, by
# `make image`: nothing is run in here.
FROM scratch AS labelled
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/sidecar-cni/sidecar-cni" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM labelled AS sidecarctl
ARG TARGETARCH
LABEL org.opencontainers.image.title="sidecarctl" \
      org.opencontainers.image.description="Answers questions about the redirection of meshed pods; takes istio-init's place"
COPY --chmod=0555 bin/linux-${TARGETARCH}/sidecarctl /
USER 65532:65532
ENTRYPOINT ["/sidecarctl"]

FROM labelled AS agent
ARG TARGETARCH
LABEL org.opencontainers.image.title="sidecar-cni" \
      org.opencontainers.image.description="Redirects meshed pods to their sidecars, without istio-init or NET_ADMIN"
COPY --chmod=0555 bin/linux-${TARGETARCH}/ /
# Agents are root, to write what belongs to root; nothing else that may come of this image has to be.
USER 65532:65532
ENTRYPOINT ["/sidecar-cni-installer"]

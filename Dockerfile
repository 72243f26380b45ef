# The same file system as `make image`, for who has a container engine:
#   docker build --tag groundcrew .
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends nftables conntrack netbase ca-certificates
WORKDIR /src
COPY . .
RUN hack/image binary && hack/image rootfs target/image/release/groundcrew /rootfs

FROM scratch
COPY --from=build /rootfs /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/groundcrew"]

# syntax=docker/dockerfile:1
# The image of the control plane: one binary that needs nothing but the C library, in an image without a shell.
#
#   docker build -t meltemi:0.1.0 --build-arg REVISION=$(git rev-parse HEAD) .

# The version of rust-toolchain.toml. Debian's release is that of the image below: it decides which C library is linked.
ARG RUST=1.95.0
FROM rust:${RUST}-slim-bookworm AS build
# For the C parts of cryptography and of the allocator.
RUN apt-get update && apt-get install -y --no-install-recommends cmake make gcc g++ libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG REVISION=unknown
ARG RUST
# Paths of this machine do not get into the binary, so that the same sources give the same bytes.
ENV MELTEMI_GIT_REVISION=${REVISION} \
    RUSTUP_TOOLCHAIN=${RUST} \
    SOURCE_DATE_EPOCH=0 \
    RUSTFLAGS="--remap-path-prefix=/src=meltemi --remap-path-prefix=/usr/local/cargo=cargo -C strip=symbols"
RUN cargo build --release --locked --package meltemi

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/meltemi /usr/local/bin/meltemi
# istiod's user: volumes and policies that name it go on to hold.
USER 1337:1337
# Writable in istiod's Deployment, where everything else is not; the root itself is kept in a Secret.
ENV XDG_STATE_HOME=/var/run/secrets/istio-dns
EXPOSE 8080 15010 15012 15014 15017
ENTRYPOINT ["/usr/local/bin/meltemi"]
CMD ["discovery"]

# A static ductworkd on an image without shell, package manager or root.
#
#   docker build -t ductworkd .
#   docker run -v ./ductwork:/etc/ductwork:ro -e DATABASE_URL=postgres://… ductworkd
#
# /etc/ductwork holds ductwork.yml, pipelines and steps. With SQLite the database belongs on the
# volume: sqlite:///var/lib/ductwork/ductwork.db. Steps in a language need that language; because
# the program is static it can be copied into any image that has it:
#
#   FROM python:3-slim
#   COPY --from=ductworkd /usr/local/bin/ductworkd /usr/local/bin/

FROM rust:1.95-alpine AS build
# For SQLite and aws-lc, which are compiled from C and linked in.
RUN apk add --no-cache build-base cmake linux-headers perl
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin ductworkd \
 && if readelf -d target/release/ductworkd | grep -q NEEDED; then echo 'ductworkd is not static' >&2; exit 1; fi \
 && mkdir -p /out/bin /out/state \
 && cp target/release/ductworkd /out/bin/

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/bin/ductworkd /usr/local/bin/ductworkd
COPY --from=build --chown=65532:65532 /out/state /var/lib/ductwork
USER 65532:65532
# Where ductworkd looks for ductwork.yml, the health check included.
WORKDIR /etc/ductwork
ENV DUCTWORK_ENV=production
VOLUME /var/lib/ductwork
# `docker stop` kills after 10 s; the supervisor drains for up to 30 s: docker stop -t 45.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/usr/local/bin/ductworkd", "health"]
ENTRYPOINT ["/usr/local/bin/ductworkd"]
CMD ["start"]

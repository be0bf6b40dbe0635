# A static ductworkd on an image without shell, package manager or root.
#
#   docker build -t ductworkd .
#   docker run -v ./ductwork:/etc/ductwork:ro -e DATABASE_URL=postgres://… ductworkd
#
# /etc/ductwork holds ductwork.yml (with a section `production`, or without any), pipelines and steps. With SQLite the database belongs on the
# volume: sqlite:///var/lib/ductwork/ductwork.db. Steps in a language need that language; because
# the program is static it can be copied into any image that has it: docs/guide/src/install.md shows one.
#
# Host names are looked up in /etc/hosts and in DNS, whatever /etc/nsswitch.conf says.

# Debian 12's C library is linked in, for the architecture that the image is built on (docs/adr/0015).
# All that this stage does is in scripts/static, and scripts/image-check tries what comes of it.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN scripts/static /out/ductworkd && mkdir /out/state

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ductworkd /usr/local/bin/ductworkd
COPY --from=build --chown=65532:65532 /out/state /var/lib/ductwork
USER 65532:65532
# Where ductworkd looks for ductwork.yml, the health check included.
WORKDIR /etc/ductwork
ENV DUCTWORK_ENV=production
VOLUME /var/lib/ductwork
# `docker stop` kills after 10 s; the supervisor drains for up to 30 s: docker stop -t 45.
STOPSIGNAL SIGTERM
# Of this container alone: what has died elsewhere on the same database is no reason to end this one.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/usr/local/bin/ductworkd", "health", "--here"]
ENTRYPOINT ["/usr/local/bin/ductworkd"]
CMD ["start"]

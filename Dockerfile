# Two images from one file: `web` serves pages and never imports torch; `worker` runs snippets and has torch, Triton and g++.

FROM node:22-bookworm-slim AS front
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY static/src static/src
RUN node static/src/build.mjs

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1
WORKDIR /srv/fuselab
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY compiler compiler

FROM base AS web
RUN pip install -c constraints.txt -e ".[web,postgres]"
COPY templates templates
COPY --from=front /src/static/dist static/dist
RUN useradd --uid 10001 --no-create-home fuselab && install -d -o fuselab data
USER fuselab
ENV FUSELAB_HOST=0.0.0.0 FUSELAB_EMBEDDED_WORKER=false FUSELAB_MODE=public
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz')"]
CMD ["python", "-m", "app.main"]

FROM base AS worker
RUN apt-get update && apt-get install -y --no-install-recommends g++ libseccomp2 openssl && rm -rf /var/lib/apt/lists/*
# pip's own index gives the CUDA build; --build-arg TORCH_INDEX=... names an index with the CPU build, which is a tenth of its size.
ARG TORCH_INDEX=
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0 \
    && (python -c "import triton" 2>/dev/null || pip install triton==3.9.0) \
    && pip install -c constraints.txt -e ".[worker,postgres]" alembic
# Root here is root of a container without privileges: it needs its six capabilities to give each snippet a user of its own.
CMD ["python", "-m", "app.worker"]

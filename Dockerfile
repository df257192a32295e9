# A server for a model that is mounted at /model: everything is pinned in requirements.lock.
#   docker build -t labelfield .
#   docker run --rm -p 127.0.0.1:8000:8000 -v ./model:/model -e LABELFIELD_TOKEN=… labelfield
FROM python:3.11-slim AS build
WORKDIR /source
COPY requirements.lock pyproject.toml README.md LICENSE ./
# Packages have the versions of the lock file, also those that only build; what tests, documentation and comparisons need
# is left out. torch goes first; TORCH_INDEX names a place with builds for the CPU alone, and of nothing else. Without it
# torch brings the packages of CUDA that it names itself, which the lock file does not have.
ENV PIP_CONSTRAINT=/source/requirements.lock PIP_NO_CACHE_DIR=1
ARG TORCH_INDEX=
RUN python -m venv /venv \
 && /venv/bin/pip install ${TORCH_INDEX:+--no-deps --index-url "$TORCH_INDEX"} "$(grep '^torch==' requirements.lock)"
COPY labelfield labelfield
RUN /venv/bin/pip install ".[serve]"

FROM python:3.11-slim
COPY --from=build /venv /venv
RUN useradd --create-home serve
USER serve
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["labelfield", "serve"]
CMD ["/model", "--host", "0.0.0.0", "--port", "8000"]

"""The application around some models, for tests."""

import io
import time
from contextlib import contextmanager

MARKUP = '<b onmouseover="alert(1)">software</b>'


class Written:
    """What a service logged, with the lines that would be written soon."""

    def __init__(self, log, file):
        self.log, self.file = log, file

    def getvalue(self):
        self.log.flush()
        return self.file.getvalue()


@contextmanager
def serving(models, **options):
    """Yield a client of an application with these models, once they are loaded; `client.log` is what it logged."""
    from starlette.testclient import TestClient

    from labelfield.serve.app import build_app
    from labelfield.serve.log import Log
    from labelfield.serve.service import Service
    from labelfield.serve.settings import Settings

    written = io.StringIO()
    settings = Settings(models=models, **options)
    service = Service(settings, Log(settings.log_text, written))
    with TestClient(build_app(service), base_url="http://localhost") as client:
        for _ in range(500):
            if service.store.is_ready or service.failure:
                break
            time.sleep(0.01)
        client.service, client.written = service, Written(service.log, written)
        yield client

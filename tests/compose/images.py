"""The images of the stack: pulled, or replaced by stand-ins where no image registry can be reached.

A stand-in has the name, the folders and the behavior of its image, as far as the stack needs them. It is made from
package registries: Debian's packages and the jars of Maven Central.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from konverse.deploy.java.coordinates import KAFKA_VERSION
from konverse.deploy.java.jars import kafka_jars
from konverse.deploy.java.java import find_java
from konverse.schemas.errors import KonverseError
from tests.compose.engine import Engine, install
from tests.compose.files import HERE, variables
from tests.compose.shell import POLL_INTERVAL_S, CannotRunHere, CheckFailed, CommandFailed

BASE: Final = "konverse-standin/debian:bookworm"
LABEL: Final = "konverse.standin"
RECIPES: Final = {"KAFKA_IMAGE": "kafka", "REDIS_IMAGE": "redis", "BASE_IMAGE": "python"}
"""Variable of the compose file → folder of `standins/` with the stand-in for its default image."""

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INSIDE: Final = "/etc/ssl/ca-certificates.crt"

REGISTRY_ANSWER_S: Final = 20
PULL_S: Final = 900
BUILD_S: Final = 900


def wanted() -> dict[str, str]:
    """Variable → image, as compose will see it."""
    defaults = variables()
    return {variable: os.environ.get(variable) or defaults[variable] for variable in RECIPES}


def provide(engine: Engine, cache: Path) -> dict[str, str]:
    """Make sure that the engine has every image. Returns image → `present`, `pulled` or `stand-in`."""
    images = wanted()
    missing = {variable: image for variable, image in images.items() if not _is_present(engine, image)}
    provided = {image: "present" for variable, image in images.items() if variable not in missing}
    # The smallest image first, which soon shows whether a registry answers.
    for variable in sorted(missing, key=lambda name: name != "REDIS_IMAGE"):
        if not _pull(engine, missing[variable]):
            break
        provided[missing.pop(variable)] = "pulled"
    if missing:
        _check_can_stand_in(missing)
        install(engine.shell, {"mmdebstrap": "mmdebstrap"})
        _make_base(engine, cache)
    for variable, image in missing.items():
        _build_standin(engine, cache, RECIPES[variable], image)
        provided[image] = "stand-in"
    return provided


def made_here(provided: dict[str, str]) -> list[str]:
    """The stand-ins and their base. A shared engine must not keep them under the names of real images."""
    standins = [image for image, how in provided.items() if how == "stand-in"]
    return [*standins, BASE] if standins else []


def _is_present(engine: Engine, image: str) -> bool:
    """Whether the engine has the real image. A stand-in is rebuilt each time, which is cheap."""
    with suppress(CommandFailed):
        format_ = f'{{{{index .Config.Labels "{LABEL}"}}}}'
        return not engine.docker("image", "inspect", "--format", format_, image).strip()
    return False


def _pull(engine: Engine, image: str) -> bool:
    """Pull `image`. False when that fails, or when no registry answers within some seconds."""
    began_s = time.monotonic()
    with NamedTemporaryFile("w", encoding="utf-8") as printed:
        command = ["docker", "pull", image]
        pull = subprocess.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, env=engine.shell.variables(), start_new_session=True
        )
        try:
            while pull.poll() is None:
                answered = "Pulling from" in Path(printed.name).read_text(encoding="utf-8")
                if time.monotonic() - began_s > (PULL_S if answered else REGISTRY_ANSWER_S):
                    break
                time.sleep(POLL_INTERVAL_S)
        finally:
            pull.kill()
            pull.wait()
        engine.shell.note(command, Path(printed.name).read_text(encoding="utf-8"))
    return pull.returncode == 0


def _check_can_stand_in(missing: dict[str, str]) -> None:
    defaults = variables()
    changed = [f"{variable}={image}" for variable, image in missing.items() if image != defaults[variable]]
    if changed:
        raise CheckFailed(f"cannot be pulled, and only the default images have stand-ins: {', '.join(changed)}")


def _make_base(engine: Engine, cache: Path) -> None:
    """Build Debian without manuals, like slim images, with this machine's certificates.

    A package mirror may be behind a proxy whose certificate only this machine has. The variables tell the programs in
    the
    containers about it. They are set here because our own images should not contain them.
    """
    trusted = hashlib.sha256(CERTIFICATES.read_bytes()).hexdigest() if CERTIFICATES.exists() else "nothing"
    with suppress(CommandFailed):
        format_ = f'{{{{index .Config.Labels "{LABEL}"}}}}'
        if engine.docker("image", "inspect", "--format", format_, BASE).strip() == trusted:
            return
    archive = cache / "debian.tar"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", f"--keyring={KEYRING}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "locale", "man")]
    changes = [f"LABEL {LABEL}={trusted}"]
    if CERTIFICATES.exists():
        command += [f"--customize-hook=copy-in {CERTIFICATES} {Path(INSIDE).parent}"]
        changes += [f"ENV PIP_CERT={INSIDE} REQUESTS_CA_BUNDLE={INSIDE} SSL_CERT_FILE={INSIDE}"]
    engine.shell.run([*command, "bookworm", archive, f"deb {_mirror(engine)} bookworm main"], within_s=BUILD_S)
    options = [word for change in changes for word in ("--change", change)]
    engine.docker("import", *options, archive, BASE, within_s=BUILD_S)
    archive.unlink()


def _mirror(engine: Engine) -> str:
    """The Debian mirror of this machine's apt."""
    targets = engine.shell.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT) $(ORIGIN)", "Created-By: Packages"]
    )
    for target in targets.splitlines():
        uri, component, origin = target.split(maxsplit=2)
        if component == "main" and origin == "Debian" and "security" not in uri:
            return uri
    raise CannotRunHere("apt names no Debian mirror, so no base image can be made; make an image registry reachable")


def _build_standin(engine: Engine, cache: Path, recipe: str, image: str) -> None:
    context = cache / "context" / recipe
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(HERE / "standins" / recipe, context)
    if recipe == "kafka":
        shutil.copytree(_jars(image.rpartition(":")[2]), context / "jars")
    engine.docker("build", "--force-rm", "--label", f"{LABEL}={recipe}", "--tag", image, context, within_s=BUILD_S)
    shutil.rmtree(context)


def _jars(version: str) -> Path:
    """The jars of a Kafka broker, as the local stack downloads them."""
    if version != KAFKA_VERSION:
        raise CheckFailed(f"deploy/compose.yaml wants Kafka {version}, the local stack runs {KAFKA_VERSION}")
    try:
        return kafka_jars(find_java())
    except KonverseError as error:
        raise CannotRunHere(str(error)) from error

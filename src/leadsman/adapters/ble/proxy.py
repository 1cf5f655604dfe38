"""ESPHome Bluetooth proxies, as settings name them: boards in other rooms that pass on what they hear."""

import base64
import binascii
import contextlib
import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from leadsman.errors import InvalidValue

PORT = 6053
"""Of ESPHome's native API."""
KEY_BYTES = 32
"""Of a pre-shared key of Noise_NNpsk0_25519_ChaChaPoly_SHA256, which ESPHome uses."""


def check_host(host: str) -> str:
    """Check the name or the address of a host. Raises `InvalidValue`."""
    text = host.strip()
    if ":" in text:
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv6Address(text))
    if not text or len(text) > 253 or not text.isprintable() or set(text) & set(" :/@,[]"):
        raise InvalidValue("host must be a name or an address, such as 'attic.local', without a port")
    return text


def check_key(key: SecretStr) -> SecretStr:
    """Check an encryption key. Raises `InvalidValue`, which does not show it."""
    try:
        size = len(base64.b64decode(key.get_secret_value().strip(), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != KEY_BYTES:
        raise InvalidValue(
            "key is not an encryption key of ESPHome; copy the 44 characters behind `api:`, `encryption:`, `key:` in "
            "the YAML of the board"
        )
    return SecretStr(key.get_secret_value().strip())


class Proxy(BaseModel):
    """An ESPHome board with `bluetooth_proxy`, as a radio of a `BleRadio`. It is a model of pydantic, so settings may
    have proxies: ``proxies: dict[str, Proxy] = {}``.

    Raises:
        pydantic.ValidationError: at construction, if a value is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: Annotated[str, AfterValidator(check_host)]
    """A name or an address, such as ``attic.local``."""
    key: Annotated[SecretStr, AfterValidator(check_key)] | None = None
    """The key of `api:` `encryption:` in the YAML of the board; None if it has none."""
    port: Annotated[int, Field(ge=1, le=65535)] = PORT
    """That of ESPHome's API."""

    @property
    def name(self) -> str:
        """The radio in messages and in introspection."""
        return self.host if self.port == PORT else f"{self.host}:{self.port}"

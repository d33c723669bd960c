"""Why Kinesis did not do what it was asked, for a person: botocore's errors as our conditions.

Owns: ``translate``, one table by the service's own codes. Secrets are masked in all that comes from outside.
Must not know: what was asked. Start reading at ``translate``.
"""

from __future__ import annotations

from typing import Any

from pgstream.errors import (
    DuplicateObject,
    InsufficientPrivilege,
    InvalidOption,
    NotReady,
    PgStreamError,
    StoreRefused,
    StoreUnreachable,
    UndefinedEntity,
)
from pgstream.stores.kinesis.client import Connection

_KEYS = "Check 'kinesis.access_key_id' and 'kinesis.secret_access_key'."
UNTRUSTED = {
    "UnrecognizedClientException": _KEYS,
    "InvalidClientTokenId": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "InvalidSignatureException": "Check 'kinesis.secret_access_key', and the clock of this server.",
    "SignatureDoesNotMatch": "Check 'kinesis.secret_access_key', and the clock of this server.",
    "IncompleteSignatureException": _KEYS,
    "MissingAuthenticationTokenException": _KEYS,
    "ExpiredTokenException": "The session token has ended: UPDATE STORE with a new one, or use 'kinesis.iam_role_arn'.",
    "ExpiredToken": "The session token has ended: UPDATE STORE with a new one, or use 'kinesis.iam_role_arn'.",
    "OptInRequired": "The AWS account is not signed up for the service.",
    "AccessDenied": "The role's trust policy must name who takes it, and its external id is 'kinesis.iam_external_id'.",
}
"""Codes of refused credentials, with what may help. STS says AccessDenied of a role, Kinesis AccessDeniedException."""
_BUSY = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "LimitExceededException",
    "RequestLimitExceeded",
    "KMSThrottlingException",
}
DENIED = {"AccessDeniedException", "KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException"}
_REFUSED = {"ValidationException", "InvalidArgumentException", "KMSNotFoundException"}


def translate(error: Exception, store: str, c: Connection, entity: str = "", making: bool = False) -> PgStreamError:
    """Our condition for one of botocore's errors; what is not in the tables is a store that cannot serve.

    ``making``: the entity was being made, so that one in use is one that is there.
    """
    response: dict[str, Any] = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    why = _masked(_sentence(str(response.get("Error", {}).get("Message") or error)), c)
    if code == "ResourceNotFoundException":
        return UndefinedEntity(name=entity, store=store)
    if code == "ResourceInUseException" and making:
        return DuplicateObject(kind="entity", name=entity)
    if code == "ResourceInUseException":
        return NotReady(what=f'entity "{entity}" is being changed: {why}', hint="Try again when it is ACTIVE.")
    if code in UNTRUSTED:
        return StoreRefused(name=store, why=f"{c.place} refuses the credentials: {why}", hint=UNTRUSTED[code])
    if code in _BUSY:
        return StoreUnreachable(name=store, why=f"{c.place} is asked too often: {why}", hint="Try again in a moment.")
    if code in DENIED:
        name = f'"{entity}"' if entity else f'of store "{store}"'
        return InsufficientPrivilege(kind="entity", name=name, detail=f"Kinesis said: {why}.")
    if code in _REFUSED:
        return InvalidOption(what=f'store "{store}" refused entity "{entity}": {why}')
    if type(error).__name__ in _LOCAL:
        return InvalidOption(what=f'store "{store}": {why}', hint=_KEYS)
    return StoreUnreachable(name=store, why=f"{c.place}: {why}", hint=hint(c))


_LOCAL = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ParamValidationError"}


def hint(c: Connection) -> str:
    where = "'uris'" if c.endpoint else "'kinesis.region'"
    return f"Check {where} and the network between this server and the store."


def _masked(text: str, c: Connection) -> str:
    for secret in c.who.secrets:
        text = text.replace(secret, "********")
    return text


def _sentence(text: str) -> str:
    """The library's text as the end of one of our sentences."""
    text = " ".join(text.split()).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text

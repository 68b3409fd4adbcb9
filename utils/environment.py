"""Which environment variables foreign code may see, and which names hold something to log in with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# The variables that are passed on. Whatever is not known here is withheld: no list of secrets is ever whole.
# fmt: off
_NAMES = {
    # the user, the shell and the terminal
    "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "PATH", "TERM",
    "COLORTERM", "LS_COLORS", "LINES", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "EDITOR", "VISUAL",
    "PAGER", "LESSOPEN", "LESSCLOSE",
    # places, the clock and the language
    "TMPDIR", "TEMP", "TMP", "TZ", "TZDIR", "LANG", "LANGUAGE", "LOCPATH", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    # Python and its environments
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_SHLVL", "MPLBACKEND",
    "MPLCONFIGDIR",
    # the loader, memory and certificates
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
    "GLIBC_TUNABLES", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # the signal of a preemption, which workers let pass by
    "SUBMITIT_PREEMPT_SIGNAL",
    # screens
    "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DRI_PRIME",
}
# Families of variables: the language, Python, this project, and the libraries that compute and draw. A secret
# name among them is withheld all the same.
_PREFIXES = (
    "LC_", "PYTHON", "RETRIAL_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_",
    "VECLIB_", "NUMBA_", "MALLOC_", "TCMALLOC_", "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVIDIA_",
    "ROCR_", "HIP_", "HSA_", "TORCH_", "PYTORCH_", "JAX_", "XLA_", "MUJOCO_", "EGL_", "__EGL_", "__GL",
    "__NV_", "MESA_", "LIBGL_", "GALLIUM_", "VK_", "SDL_", "PYGAME_", "PYOPENGL_",
)
_PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"}

# Words and ends of names that hold something to log in with.
_WORDS = {
    "KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "CREDENTIAL", "AUTH",
    "OAUTH", "AUTHORIZATION", "BEARER", "COOKIE", "JWT", "PAT", "PEM", "CERT", "SK", "DSN", "WEBHOOK",
    "NETRC", "KUBECONFIG",
}
_ENDS = ("APIKEY", "SECRETKEY", "ACCESSKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_NO_SECRETS = {"PWD", "OLDPWD"}
# Words of names that count things, such as max_tokens.
_COUNTS = {"NUM", "MAX", "MIN", "PER", "COUNT"}
# fmt: on

_URL_USER = re.compile(r"://[^/@\s]+@")
_PROXY_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# A shorter value of a secret variable would be found in texts by chance.
_LEAST_SECRET = 8


def passed_on(environment: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Return what a process that runs foreign code gets of an environment: what is known to be harmless.

    Proxies lose their users and passwords. The names in `keep` are passed on as they are.
    """
    kept = set(keep)
    passed = dict[str, str]()
    for name, value in environment.items():
        if name in kept:
            passed[name] = value
        elif name.upper() in _PROXIES:
            passed[name] = _PROXY_USER.sub(r"\1", value)
        elif _is_known(name):
            passed[name] = value
    return passed


def withheld(environment: Mapping[str, str], keep: Iterable[str] = ()) -> list[str]:
    """Return the names that `passed_on` leaves out, sorted."""
    return sorted(environment.keys() - passed_on(environment, keep).keys())


def _is_known(name: str) -> bool:
    return name in _NAMES or (name.startswith(_PREFIXES) and not is_secret(name))


def is_secret(name: str) -> bool:
    """Return whether a variable or an option of this name may hold something to log in with."""
    words = re.split(r"[^A-Z0-9]+", _CAMEL.sub("_", name).upper())
    if name in _NO_SECRETS or _COUNTS.intersection(words):
        return False
    single = [word if word == "PASS" else word.removesuffix("S") for word in words]
    return words[0] == "AWS" or any(word in _WORDS or word.endswith(_ENDS) for word in single)


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Return the values of secret variables, which no record may contain; the longest first."""
    values = {environment[name] for name in withheld(environment) if is_secret(name)}
    return sorted((value for value in values if len(value) >= _LEAST_SECRET), key=len, reverse=True)


def without_secrets(text: str, values: Iterable[str] = ()) -> str:
    """Return a text with stars for the users and passwords of its URLs, and for any of these values."""
    for value in values:
        text = text.replace(value, "***")
    return _URL_USER.sub("://***@", text)

"""What foreign code may see of an environment: what is known to be harmless, and nothing that logs in."""

from __future__ import annotations

import pytest

from utils.environment import is_secret, passed_on, secret_values, withheld, without_secrets

# fmt: off
# Names by which programs are given something to log in with.
CANARIES = [
    "WANDB_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN",
    "GITHUB_TOKEN", "GITHUBTOKEN", "GH_PAT", "GITHUB_PAT", "GITLAB_TOKENS", "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY", "MY_SECRET", "SECRETS", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "DB_PASS",
    "db_passwd", "REDIS_AUTH", "DOCKER_AUTH_CONFIG", "NPM_CONFIG__AUTH",
    "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "NETRC", "SLACK_WEBHOOK_URL", "SENTRY_DSN",
    "STRIPE_SK", "PRIVATE_PEM", "SIGNING_CERT", "CI_JOB_JWT", "SESSION_COOKIE", "BEARER", "OAUTH",
    "SECRETKEY", "ACCESSKEY", "SSH_PASSPHRASE", "api-key", "AZURE_CLIENT_SECRET", "TWINE_PASSWORD",
]
# Names that say nothing of the password in their value, or of the door that they open.
SILENT = ["DATABASE_URL", "PIP_INDEX_URL", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "MY_LICENCE"]
HARMLESS = [
    "PATH", "HOME", "PWD", "OLDPWD", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONHASHSEED",
    "PYTHONPATH", "VIRTUAL_ENV", "MUJOCO_GL", "XAUTHORITY", "DISPLAY", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "EGL_PLATFORM", "__EGL_VENDOR_LIBRARY_FILENAMES", "PYOPENGL_PLATFORM", "SSL_CERT_FILE",
    "MPLBACKEND", "no_proxy",
]
# fmt: on


@pytest.mark.parametrize("name", [*CANARIES, *SILENT])
def test_whatever_is_not_known_is_withheld(name: str) -> None:
    environment = {name: "canary", "HOME": "/x"}
    assert passed_on(environment) == {"HOME": "/x"}
    assert withheld(environment) == [name]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_programs_need_is_passed_on(name: str) -> None:
    assert passed_on({name: "it"}) == {name: "it"} and withheld({name: "it"}) == []


def test_a_secret_of_a_known_library_is_withheld() -> None:
    assert withheld({"TORCH_HUB_TOKEN": "x", "PYTHON_KEYRING_PASSWORD": "x", "CUDA_CACHE_PATH": "x"}) == [
        "PYTHON_KEYRING_PASSWORD",
        "TORCH_HUB_TOKEN",
    ]


def test_what_the_user_names_is_passed_on_as_it_is() -> None:
    environment = {"HF_TOKEN": "x", "HTTPS_PROXY": "http://u:p@proxy:1"}
    assert passed_on(environment, ["HF_TOKEN", "HTTPS_PROXY", "ABSENT"]) == environment
    assert withheld(environment, ["HF_TOKEN"]) == []


@pytest.mark.parametrize(
    ("proxy", "passed"),
    [
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://user:password@proxy:3128", "http://proxy:3128"),
        ("socks5h://user:a/b@c@proxy:1080/", "socks5h://proxy:1080/"),
        ("user:password@proxy:3128", "proxy:3128"),
    ],
)
@pytest.mark.parametrize("name", ["https_proxy", "ALL_PROXY"])
def test_a_proxy_loses_its_user(name: str, proxy: str, passed: str) -> None:
    assert passed_on({name: proxy}) == {name: passed} and withheld({name: proxy}) == []


@pytest.mark.parametrize("name", [*CANARIES, "SSH_AUTH_SOCK", "apiKey", "Api-Key", "headers.authorization"])
def test_a_name_of_something_to_log_in_with_is_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "XAUTHORITY",
        "num_keys",
        "max_tokens",
        "tokens_per_s",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)


def test_no_record_holds_the_value_of_a_secret_variable() -> None:
    environment = {
        "A_TOKEN": "canary-1",
        "B_PASS": "canary-1-and-more",
        "C_KEY": "short",
        "HOME": "/users/x",
    }
    values = secret_values(environment)
    assert values == ["canary-1-and-more", "canary-1"]
    text = "canary-1-and-more, canary-1, short, /users/x, git+ssh://u:p@host/a@b"
    assert without_secrets(text, values) == "***, ***, short, /users/x, git+ssh://***@host/a@b"

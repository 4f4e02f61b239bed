"""Wrong settings are named, wherever they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import TIMEOUT_S_MAX, PoolOptions, Settings
from konverse.schemas.errors import InvalidSettings


def test_settings_come_from_arguments_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "konverse.toml").write_text('kafka = "kafka://file:1"\ndatabase = "file"\nredis = "redis://file"\n')
    monkeypatch.setenv("KONVERSE_DATABASE", "environment")
    monkeypatch.setenv("KONVERSE_REDIS", "redis://environment")
    settings = Settings.load(redis="redis://argument", kafka=None)
    assert (settings.kafka, settings.database, settings.redis) == (
        "kafka://file:1",
        "environment",
        "redis://argument",
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"redis": "localhost:6379"}, "setting 'redis'.*must look like redis://host:port"),
        ({"kafka": "localhost:9092"}, "setting 'kafka'.*must look like kafka://host:port"),
        ({"kafka": "kafka://"}, "setting 'kafka'.*must look like kafka://host:port"),
        ({"send_timeout_s": 0}, "setting 'send_timeout_s'.*KONVERSE_SEND_TIMEOUT_S.*greater than 0"),
        ({"group_protocol": "newest"}, "setting 'group_protocol'.*'consumer' or 'classic'"),
        ({"kafka": "kafka://host:port"}, "setting 'kafka'.*[Pp]ort"),
        ({"kafka": "kafka://one:9092,two:99999"}, "setting 'kafka'.*[Pp]ort"),
        ({"kafka": "kafka://one:9092,:9093"}, "setting 'kafka'.*a host and a port of each broker"),
        ({"colour": "blue"}, r"^there is no setting 'colour' \("),
        ({"databse": "sales"}, "there is no setting 'databse'; did you mean 'database'"),
        ({"client": {"a": 1}}, r"setting 'client.a' \(environment KONVERSE_CLIENT, or konverse.toml\): .*string"),
        ({"client": {"client.id": "a\udcff"}}, "setting 'client'.*not UTF-8"),
        ({"kafka": "kafka://host\udcff:9092"}, "setting 'kafka'.*not UTF-8"),
        ({"redis": "redis://:pw\udcff@host/0"}, "setting 'redis'.*not UTF-8"),
        ({"connect_timeout_s": "inf"}, "setting 'connect_timeout_s'.*finite"),
        ({"append_timeout_s": float("nan")}, "setting 'append_timeout_s'.*finite"),
        ({"append_timeout_s": 2_147_484}, "setting 'append_timeout_s'.*less than or equal to 2147483"),
        ({"send_timeout_s": float("inf")}, "setting 'send_timeout_s'.*finite"),
        ({"replication_factor": 0}, "setting 'replication_factor'.*1 or more, or -1 for the default"),
        ({"replication_factor": 100_000}, "setting 'replication_factor'.*less than or equal to 10000"),
        ({"redis": "redis://host:6379/0?socket_timeout=abc"}, "setting 'redis'.*socket_timeout"),
        ({"redis": "redis://host:6379/0?colour=blue"}, "setting 'redis'.*the option 'colour'"),
        ({"redis": "redis://host:6379/first"}, "setting 'redis'.*number of a Redis database"),
        ({"client": {"acks": "0", "linger.ms": "1"}}, r"setting 'client'.*must leave out acks, which konverse sets"),
    ],
)
def test_a_setting_that_cannot_be_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        Settings.load(**given)


@pytest.mark.parametrize("sign", "/#?@")
def test_a_password_with_a_sign_that_is_not_encoded_is_refused_with_the_remedy(sign: str) -> None:
    with pytest.raises(InvalidSettings, match=r"%2F.*%23.*%3F.*%40") as refused:
        Settings.load(redis=f"redis://user:s3cret{sign}pw@host:6379/0")
    assert "s3cret" not in str(refused.value)
    assert "redis://user:***@host:6379/0" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"redis": "redis://:s3cret@host:6379/first"},
        {"redis": "http://u:s3cret@host"},
        {"redis": "redis://host:6379/0?password=s3cret&bogus=1"},
        {"kafka": "kafka://u:s3cret@host:port"},
        {"client": {"sasl.password": b"s3cret\xff"}},
        {"client": {"ssl.key.password": ["s3cret"]}},
        {"client": {"sasl.oauthbearer.config": {"a": "s3cret"}}},
        {"client": {"sasl.password": "s3cret", "acks": "0"}},
        {"client": "sasl.password=s3cret"},
        {"client": ["sasl.password=s3cret"]},
        {"client": {"linger.ms": ["sasl.password=s3cret"]}},
        {"redis": ["redis://:s3cret@host"]},
        {"redis": "redis://:[s3cret]x@host/0"},
        {"redis": "redis://:[s3cret@host/0"},
        {"redis": "redis://host:s3cret/0"},
        {"redis": "redis://host:s3/cret/s3cret"},
        {"redis": ":s3cret@host:6379"},
        {"redis": "user:s3cret@host:6379/0"},
        {"redis": "redis://host/0?passwort=s3cret"},
        {"redis": "redis://host/0?pass-wort=s3cret"},
        {"redis": "rediss://host/0?ssl_cert_reqs=s3cret"},
        {"kafka": "user:s3cret@host:9092"},
        {"kafka": "kafka://user:s3cret@host:9092"},
        {"kafka": "kafka://one:9092,user:s3cret@two:9092"},
        {"kafka": "kafka://one:9092,two:s3cret"},
        {"kafka": "kafka://one:9092,two:s3/cret"},
    ],
    ids=str,
)
def test_an_error_never_shows_a_secret(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings.load(**given)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://:[pw]x@host/0", "redis://host:port/0", "redis://host:99999/0", "redis://[::1/0"]
)
def test_a_url_of_redis_that_cannot_be_read_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"setting 'redis'.*port.*%2F.*%23.*%3F.*%40.*%5B"):
        Settings.load(redis=url)


@pytest.mark.parametrize(
    "url", ["kafka://user:pw@host:9092", "kafka://user@host:9092", "kafka://one:9092,u:pw@two:9092", "u:pw@host:9092"]
)
def test_a_url_of_kafka_with_a_user_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"setting 'kafka'.*`client`.*sasl\.username.*sasl\.password"):
        Settings.load(kafka=url)


@pytest.mark.parametrize(
    ("client", "kind"), [("sasl.password=pw", "str"), (["sasl.password=pw"], "list"), (b"sasl.password=pw", "bytes")]
)
def test_a_client_that_is_no_dictionary_is_named_by_its_type(client: object, kind: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"setting 'client'.*dictionary, not a value of the type {kind}$"):
        Settings.load(client=client)


@pytest.mark.parametrize("option", ["passwort", "pass-wort", "colour"])
def test_an_option_of_redis_that_is_unknown_is_named_without_its_value(option: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"the option '{option}'.*not 'redis://host/0\?{option}=\*\*\*'"):
        Settings.load(redis=f"redis://host/0?{option}=value")


def test_settings_are_shown_without_secrets() -> None:
    settings = Settings.load(redis="redis://u:s3cret@host/0?password=s3cret", client={"sasl.password": "s3cret"})
    assert settings.redis == "redis://u:s3cret@host/0?password=s3cret"
    for shown in (repr(settings), str(settings), f"{settings}"):
        assert "s3cret" not in shown
        assert "redis://u:***@host/0?password=***" in shown


SECRETS: Final = (
    "https.ca.pem",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.password",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
)
"""Properties of librdkafka 2.16 that hold a password, a key, a certificate or a command with one of these."""


@pytest.mark.parametrize("name", SECRETS)
def test_a_property_of_librdkafka_that_holds_a_secret_is_never_shown(name: str) -> None:
    settings = Settings.load(client={name: "s3cret", "client.rack": "shown"})
    assert "s3cret" not in repr(settings)
    assert "'client.rack': 'shown'" in repr(settings)
    with pytest.raises(InvalidSettings) as refused:
        Settings.load(client={name: "s3cret", "acks": "1"})
    assert "s3cret" not in str(refused.value)


def test_an_environment_and_a_file_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KONVERSE_CLIENT", "not json")
    with pytest.raises(InvalidSettings, match=r"the environment or konverse\.toml cannot be read.*client"):
        Settings.load()
    monkeypatch.delenv("KONVERSE_CLIENT")
    (tmp_path / "konverse.toml").write_text("kafka = kafka://no-quotes\n")
    with pytest.raises(InvalidSettings, match=f"{tmp_path}/konverse.toml cannot be read"):
        Settings.load()


def test_a_file_that_the_disk_does_not_give_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "konverse.toml").symlink_to("/proc/self/mem")  # opens, and fails on reading, for root too
    with pytest.raises(InvalidSettings, match=f"{tmp_path}/konverse.toml cannot be read: .*Input/output error"):
        Settings.load()


def test_the_longest_timeout_is_accepted_by_the_client_of_kafka() -> None:
    Kafka(Settings.load(append_timeout_s=TIMEOUT_S_MAX)).journal_producer()


def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KONVERSE_KAFAK", "kafka://elsewhere:9092")
    monkeypatch.setenv("KONVERSE_TEST_REDIS", "somebody else's")
    assert Settings.load().kafka != "kafka://elsewhere:9092"
    said = [record.message for record in caplog.records]
    assert said == ["the environment variable KONVERSE_KAFAK is not read; did you mean KONVERSE_KAFKA?"]


def test_a_property_that_the_client_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(InvalidSettings, match=r'setting .client.*No such configuration property: "securty\.protocol"'):
        Kafka(Settings.load(client={"securty.protocol": "SSL"}))


@pytest.mark.parametrize(
    ("protocol", "encrypted"),
    [("", False), ("PLAINTEXT", False), ("sasl_plaintext", False), ("SSL", True), ("sasl_ssl", True)],
)
def test_only_tls_protocols_count_as_encrypted(protocol: str, encrypted: bool) -> None:
    client = {"security.protocol": protocol} if protocol else {}
    assert Settings.load(client=client).encrypted is encrypted


@pytest.mark.parametrize(
    ("clause", "remedy"),
    [
        ({"size": 0}, "size is 0; a pool has 1 to 10000 conversations"),
        ({"max_messages": 0}, "max_messages is 0; leave it out or give at least 1"),
        ({"max_age": 0}, "max_age is 0; give the seconds .* above 0, or leave it out"),
        ({"max_age": -1.0}, "max_age is -1; give the seconds"),
        ({"lifetime": 0}, "lifetime is 0; give the seconds .* above 0, or leave it out"),
        ({"lifetime": -0.5}, "lifetime is -0.5; give the seconds"),
    ],
)
def test_the_error_for_an_invalid_pool_option_names_the_option_and_the_remedy(
    clause: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(InvalidSettings, match=f"^{remedy}"):
        PoolOptions("//shop", "//orders", "//ordering", **clause).check()


@pytest.mark.parametrize(
    ("max_age", "lifetime", "timer_s"),
    [
        (1, None, 11),
        (30, None, 60),
        (3_600, None, 3_660),
        (5, 100, 15),
        (5, 12, 8.5),  # else a dead sender's conversation would last until its lifetime is over
        (12, 5, None),
    ],
)
def test_the_timer_of_a_pool_is_due_behind_its_age_and_before_the_lifetime(
    max_age: float, lifetime: float | None, timer_s: float | None
) -> None:
    options = PoolOptions("//shop", "//orders", "//ordering", max_age=max_age, lifetime=lifetime)
    assert options.timer_s == timer_s

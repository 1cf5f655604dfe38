"""The setup of an app: its names, broker, adapters, settings and registrations, before and after the settings are
loaded."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from leadsman._version import UNVERSIONED, __version__
from leadsman.core.adapters.adapter import Adapter
from leadsman.core.adapters.managed import check_installed, managed_adapters, replace_by_twins
from leadsman.core.extension import Extension
from leadsman.core.mqtt.broker import Brokers, brokers_of, with_credentials
from leadsman.core.mqtt.topics import Identity, Topics, check_client_id, check_instance, check_prefix
from leadsman.core.registration.declaration import Option
from leadsman.core.registration.injection import Dependency, fill, settings_dependencies
from leadsman.core.registration.registry import Registry, ask_user
from leadsman.core.registration.router import Registration
from leadsman.core.registration.telemetry import Telemetry, with_policy
from leadsman.core.resilience.overrides import IN_HANDLER, PolicyOverride, block
from leadsman.core.resilience.policy import Named, Policy, as_policy
from leadsman.core.settings.entry import Entries
from leadsman.core.settings.load import Loaded, read, to_write
from leadsman.core.settings.rows import SettingRow, device_rows, rows_of
from leadsman.core.settings.secrets import secrets_of
from leadsman.core.settings.sections import (
    BROKER,
    ExtensionsSettings,
    declared_sections,
    read_own_section,
    read_sections,
    section_of,
)
from leadsman.core.settings.sources import Where, near_misses, settings_file
from leadsman.core.text import clean, log_fields
from leadsman.core.text.redaction import Public, Redaction
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import (
    ConfigurationError,
    InvalidType,
    InvalidValue,
    SettingsError,
    collect,
    raise_together,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from leadsman.core.events import AttemptFailed, PollFailed
    from leadsman.core.readings.reading import Reading
    from leadsman.core.registration.device_settings import DeviceSettings
    from leadsman.core.resilience.catalogue import Catalogue

A = TypeVar("A")

DRY_RUN = "dry-run"
"""The topics of a dry run begin with this text, and its client id ends with it."""


Adapters = Sequence[Adapter] | Mapping[str, Adapter]
MakeAdapters = Callable[[Any], Adapters]
"""Makes adapters from the settings."""
AdapterSource = Adapters | MakeAdapters
MakeRedaction = Callable[..., Sequence[str]]
"""Makes the patterns of what is hidden from the settings."""
Show = Callable[["Reading | PollFailed | AttemptFailed", Mapping[str, str]], None]
"""Takes a reading, with the units of its fields, or a failed call."""

logger = logging.getLogger("leadsman")


class Declaration(NamedTuple):
    """What the author of an app declared, checked. It never changes."""

    name: str
    topics: Topics
    instance: str
    """The end of the client id."""
    brokers: Brokers | None
    """None: the settings name them."""
    adapters: AdapterSource
    """The adapters, or a function that makes them from the settings."""
    model: "type[BaseModel] | None"
    """The class of the settings."""
    settings: "BaseModel | None"
    """Settings that are filled already."""
    twins: MakeAdapters | None
    sections: Mapping[str, object] = {}
    """What its author declared of sections of the settings, by their names, as he wrote it."""
    redact: MakeRedaction | None = None
    """Makes the redaction of what is hidden besides, if the settings decide it."""
    version: str = UNVERSIONED
    program: str = ""
    """The file in which the app is made."""
    extensions: tuple[Extension, ...] = ()


class RegistrationList:
    """Registrations in their order. A loop over devices makes registrations that differ only in their names; they are
    kept as one, since a registration for each of a thousand devices would take 300 bytes a device."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []
        self._names: list[str] = []
        """The names of the last registration, if it may take further names."""

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations)

    def add(self, registration: Registration) -> None:
        """Add a registration."""
        names = registration.names
        if not isinstance(names, str):
            self._names = []
            self._registrations.append(registration)
        elif (
            self._names and registration[2:] == (last := self._registrations[-1])[2:] and registration.kind == last.kind
        ):
            self._names.append(names)
        else:
            self._names = [names]
            self._registrations.append(registration._replace(names=self._names))


class Setup:
    """What an app is set up with.

    Args:
        declaration: what its author declared.
        adapters: adapters that replace the declared ones.
        registrations: registrations to begin with.
        policies: named policies to begin with.
        overrides: policies that override those of the handlers at the moment.

    Raises:
        ConfigurationError: an adapter or a registration is wrong.
    """

    def __init__(
        self,
        declaration: Declaration,
        adapters: AdapterSource | None = None,
        registrations: Iterable[Registration] = (),
        policies: Iterable[Named] = (),
        overrides: PolicyOverride | None = None,
    ) -> None:
        adapters = declaration.adapters if adapters is None else adapters
        self.declaration = declaration
        self.prefix = declaration.topics.prefix
        """The topic prefix."""
        self.client_id = declaration.topics.prefix + declaration.instance
        self.dry_run = False
        """Whether this is a dry run, which touches nothing real."""
        self.show: Show | None = None
        """Takes what is shown while the app runs, and returns at once; None: nothing is."""
        self.extensions = declaration.extensions
        """What extends the app, apart from what leadsman ships."""
        self.registry = Registry(declaration.name, further=self._further())
        self.adapters = () if callable(adapters) else managed_adapters(adapters)
        self.catalogue: Catalogue | None = None
        """The named policies; None where no handler needs one."""
        self.sections = declared_sections(declaration.sections)
        """What the sections of the settings have settled."""
        self.shares: Literal["app", "devices"] | None = None
        """What this node shares with others: the whole app, of which one node acts, or its devices; None: nothing."""
        self.node: str | None = None
        """The name of this node among those that share the devices."""
        self.device_settings: DeviceSettings | None = None
        """The settings of single devices; None: there are none."""
        self.loaded_from: Where | None = None
        """Where the settings were read from; None until they are loaded."""
        self.settings_file: str | None = None
        self.overrides: PolicyOverride = [] if overrides is None else overrides
        self._secrets = (*secrets_of(declaration.settings),)
        """The secrets of the settings."""
        self._redaction: Redaction | None = None
        """What is hidden besides, if the settings decide it. It is hidden as long as this object lives."""
        self._public: tuple[Public, ...] = (Public(declaration.name), Public(self.prefix))
        """Texts that are shown, even if one is a password, too."""
        self._brokers = declaration.brokers
        self._make_adapters = adapters if callable(adapters) else None
        self._settings_dependencies = settings_dependencies(declaration.model)
        self._loaded: Loaded | None = None
        self._policies = list(policies)
        self._record = RegistrationList()
        self._waiting: list[Registration] = []
        for registration in registrations:
            self.register(registration)

    def unloaded(self, adapters: AdapterSource | None = None) -> "Setup":
        """The same setup before its settings were loaded, with other adapters if they are given."""
        return Setup(self.declaration, adapters, self._record, self._policies, self.overrides)

    @property
    def settings(self) -> Any:
        """The settings, once they are loaded. Raises `InvalidValue` before, and if there are none."""
        found = self.declaration.settings if self._loaded is None else self._loaded.settings
        if found is None:
            raise InvalidValue("the settings are not loaded yet; run the app, or call app.load() first")
        return found

    @property
    def topics(self) -> Topics:
        """The topics."""
        return Topics(self.prefix, self.registry.root, self.node)

    @property
    def brokers(self) -> Brokers:
        """The brokers. Raises `InvalidValue` if they depend on settings that are not loaded yet."""
        if self._brokers is None:
            raise InvalidValue("the broker is not known yet; run the app, or call app.load() first")
        return self._brokers

    @property
    def identity(self) -> Identity:
        """Who the app is."""
        declared = self.declaration
        return Identity(declared.name, declared.version, __version__, self.topics, self.client_id, declared.program)

    @property
    def rows(self) -> tuple[SettingRow, ...]:
        """Every loaded value with its origin. Secrets are masked."""
        if self._loaded is None or not self._loaded.devices:
            return () if self._loaded is None else self._loaded.rows
        return (*self._loaded.rows, *device_rows(self._loaded.devices))

    def load(self, where: Where | None = None) -> None:
        """Read the settings, and register the devices that they define. A second call changes nothing.

        Raises:
            ConfigurationError: see `App.load`.
        """
        if self._loaded is not None:
            return
        declared, where = self.declaration, where or Where.here()
        loaded = self._read(where)
        file = settings_file(where)
        self.settings_file = None if file is None else str(file)
        if declared.settings is not None:
            loaded = loaded._replace(settings=declared.settings, rows=(*loaded.rows, *rows_of(declared.settings, {})))
        self._secrets = (*loaded.secrets, *secrets_of(loaded.settings))
        self._check(loaded)
        if (near := near_misses(where.environment)) and loaded.sections[BROKER].keys().isdisjoint(("url", "host")):
            about = log_fields("variable unread", variables=", ".join(near))
            logger.warning(
                "%s", "; ".join(f"{one} is not read; write {other}" for one, other in near.items()), extra=about
            )
        if loaded.settings is not None:
            fill(self._settings_dependencies, loaded.settings)
        if declared.redact is not None:
            self._redaction = Redaction(ask_user("redact", declared.redact, loaded.settings))
        if self._make_adapters is not None:
            self.adapters = managed_adapters(ask_user("adapters", self._make_adapters, loaded.settings))
        waiting, self._waiting = self._waiting, []
        self._loaded, self.loaded_from = loaded, where
        if self.device_settings is not None:  # also about what is registered already
            self.registry = Registry(declared.name, self.device_settings, self._further())
            waiting = [*self._record]
        for registration in waiting:
            self._expand(registration)
        self.registry.check_fields()
        if self.device_settings is not None:
            polled = self.registry.telemetries.values()
            self.device_settings.check(self.registry.names, polled, finds=self.registry.finds)
        self._check_log(loaded.sections["log"])
        for name, telemetry in self.registry.telemetries.items():
            self.registry.telemetries[name] = self._decide(telemetry)
        self._check_foreign()
        for name, settled in self.sections.shipped.items():
            section_of(name).check_registered(self, settled, loaded.sections)

    def _further(self) -> Mapping[str, Mapping[str, Option]]:
        """The options of decorators that extensions add."""
        if not any(each.options for each in self.extensions):
            return {}
        from leadsman.core.registration.further_options import further_options

        return further_options(self.extensions)

    def _read(self, where: Where) -> Loaded:
        """Read the settings, and those of the extensions that they name."""
        declared, given = self.declaration, self.declaration.extensions
        model = declared.model if declared.settings is None else None
        if given:
            from leadsman.core.registration.extensions import check_apart

            check_apart(given, declared.model)
        loaded = read(declared.name, model, where, _sections_of(given))
        if (entry := loaded.sections["extensions"].get("names")) is not None:
            from leadsman.core.registration.extensions import check_apart, named_extensions

            names = read_own_section("extensions", ExtensionsSettings, loaded.sections["extensions"]).names
            self.extensions = (*given, *entry.read(lambda _: named_extensions(names)))
            check_apart(self.extensions, declared.model)
            loaded = read(declared.name, model, where, _sections_of(self.extensions))
        return loaded

    def section(self, kind: type[A]) -> A:
        """The values of the section of an extension, whose class this is. Raises `InvalidValue`."""
        if self._loaded is not None:
            for each in self.extensions:
                if each.settings is kind:
                    return cast("A", self._loaded.own[each.name])
        raise InvalidValue(
            f"no extension of the app has the settings {kind.__name__}, or they are not loaded yet; give the extension"
            " to App(extensions=[…])"
        )

    def _check_foreign(self) -> None:
        """See that the app does not subscribe to its own topics, also in a dry run."""
        self.registry.check_foreign(self.prefix, f"{DRY_RUN}/{self.prefix}")

    def _check_log(self, section: Entries) -> None:
        """See that the levels of the log are about devices that there are, unless handlers find further ones."""
        log = self.sections.log
        if log is None or not log.devices or self.registry.finds:
            return
        from leadsman.core.settings.devices import DeviceSections, no_device  # few logs have levels for devices

        names, faults = self.registry.names, []
        for key in DeviceSections({key: {} for key in log.devices}).unmatched(names):
            error = InvalidValue(f"{clean(key)!r}: {no_device(key, names)}").at(key)
            faults.append(section["devices"].fault(error))
        raise_together(faults)

    def _check(self, loaded: Loaded) -> None:
        """Read the sections of leadsman, the names and the policies. Raises one `ConfigurationError` for all faults,
        with those of the settings."""
        sections = loaded.sections
        faults: list[ConfigurationError] = [SettingsError("\n".join(loaded.faults))] if loaded.faults else []
        with collect(faults):
            self._read_brokers(sections[BROKER])
        with collect(faults):
            self._read_names(sections[BROKER])
        self.sections = read_sections(self.sections, sections, faults)
        for name, settled in self.sections.shipped.items():
            with collect(faults):
                section_of(name).check(self, settled, [*(self._brokers or ())])
        with collect(faults):
            if loaded.devices:
                from leadsman.core.registration.device_settings import DeviceSettings

                self.device_settings = DeviceSettings(loaded.devices, self._further())
        with collect(faults):
            if loaded.retry or self._policies:
                self.catalogue = self._catalogue_of(loaded)
        raise_together(faults)

    def share_devices(self, node: str) -> None:
        """Share the devices with other nodes; `node` is the name of this one."""
        self.shares, self.node = "devices", node
        self.client_id += f"-{node}"

    def share_nothing(self) -> None:
        """Run on this node alone, whatever the settings say."""
        self.sections, self.shares, self.node = self.sections.alone(), None, None

    def _read_brokers(self, section: Entries) -> None:
        """Take the brokers of the settings, or those that the author declared, with credentials of the settings."""
        declared = self.declaration.brokers
        if declared is None or not section.keys().isdisjoint(("url", "host")):
            self._brokers = brokers_of(section)
        else:
            self._brokers = with_credentials(declared, section)
        self._public += tuple(Public(each) for one in self._brokers for each in (one.host, one.username or one.host))

    def _read_names(self, section: Entries) -> None:
        """Take the prefix, the instance and the client id of the settings. Two processes of one app differ in prefix
        and client id."""
        instance = self.declaration.instance
        if (given := section.get("topic_prefix")) is not None:
            self.prefix = given.read(check_prefix)
        if (given := section.get("instance")) is not None:
            instance = f"-{given.read(check_instance)}"
        self.client_id = self.prefix + instance
        if (given := section.get("client_id")) is not None:
            self.client_id = given.read(check_client_id)
        self._public += (Public(self.prefix), Public(self.client_id))

    def _catalogue_of(self, loaded: Loaded) -> "Catalogue":
        from leadsman.core.resilience.catalogue import Catalogue

        catalogue = Catalogue(loaded.retry, loaded.retry_origins)
        for named in self._policies:
            catalogue.add(named)
        return catalogue

    def name_policy(self, named: Named) -> None:
        """Add a named policy. Raises `InvalidValue` once the settings are loaded."""
        if self._loaded is not None:
            raise InvalidValue(
                f"policy {named.name!r}: the settings are already loaded; add policies before the app runs"
            )
        self._policies.append(named)

    def policy(self, given: Policy | str) -> Policy:
        """A policy, or the one with that name, including its predicate. Raises `InvalidValue`, `InvalidType`."""
        if not isinstance(given, str):
            return as_policy(given)
        from leadsman.core.resilience.catalogue import Catalogue

        catalogue = self.catalogue or Catalogue()
        named = catalogue.named.get(given)
        return catalogue.policy(given) if named is None else named.policy.only_when(named.condition)

    @contextmanager
    def override(self, given: Policy | str, devices: Sequence[str] | None) -> Iterator[None]:
        """See `App.retrying`."""
        policy = self.policy(given)
        if IN_HANDLER.get():
            if devices is not None:
                raise InvalidValue("retrying: in a handler it governs the failures of its own block; leave devices out")
            with block(policy):
                yield
            return
        polled = self.registry.telemetries
        for name in devices or ():
            if name not in polled:
                raise InvalidValue(f"retrying: no device {name!r} is polled; {suggestion(name, polled)}")
        entry = (None if devices is None else frozenset(devices), policy)
        self.overrides.append(entry)
        try:
            yield
        finally:
            self.overrides.remove(entry)

    def register(self, registration: Registration) -> None:
        """Add one registration. If its names come from the settings, it waits until they are loaded."""
        if callable(registration.names) and self.declaration.model is None:
            raise InvalidValue(
                f"{registration.kind}: its names come from the settings; write App(…, settings=Settings)"
            )
        if self._loaded is None and (callable(registration.names) or self._make_adapters is not None):
            self._waiting.append(registration)
        else:
            self._expand(registration)
        if self._loaded is not None:
            self._check_foreign()
        self._record.add(registration)

    def _expand(self, registration: Registration) -> None:
        available: list[Dependency] = [*self.adapters, *self._settings_dependencies]
        if self._loaded is None:
            self.registry.add(registration, None, available, None)
        else:
            self.registry.add(registration, self._loaded.settings, available, self._decide)

    def _decide(self, telemetry: Telemetry) -> Telemetry:
        """The telemetry with the policy that it names, or that the settings choose for it."""
        assert self._loaded is not None  # called once they are loaded
        if self.catalogue is None and telemetry.policy_name is not None:
            self.catalogue = self._catalogue_of(self._loaded)
        return telemetry if self.catalogue is None else with_policy(telemetry, self.catalogue)

    def adapter(self, kind: type[A], name: str | None = None) -> A:
        """See `App.adapter`."""
        found = [each.adapter for each in self.adapters if each.fits(kind) and name in (None, each.name)]
        if len(found) != 1:
            known = ", ".join(each.label for each in self.adapters) or "none"
            count = len(found) or "no"
            raise InvalidValue(f"the app has {count} adapters of the type {kind.__name__}; it has: {known}")
        return cast(A, found[0])

    def use_twins(self, twins: AdapterSource | None = None) -> None:
        """Replace the adapters by their twins. This loads the settings if they are not loaded yet.

        Args:
            twins: twins that replace the declared ones.

        Raises:
            InvalidValue: the app has adapters and no twins, or not one for each adapter.
        """
        twins = self.declaration.twins if twins is None else twins
        self.load()
        if twins is None and not self.adapters:
            return
        if twins is None:
            raise InvalidValue("the app has no twins; write App(…, twins=lambda settings: (SerialTwin(…),))")
        settings = None if self._loaded is None else self._loaded.settings
        replace_by_twins(self.adapters, ask_user("twins", twins, settings) if callable(twins) else twins)

    def rehearse(self) -> None:
        """Turn it into a dry run: other topics, and another client id. A second call changes nothing."""
        if not self.dry_run:
            self.dry_run = True
            self.prefix = f"{DRY_RUN}/{self.prefix}"
            self.client_id = f"{self.client_id}-{DRY_RUN}"
            self.sections, self.shares, self.node = self.sections.in_dry_run(), None, None

    def check_installed(self) -> None:
        """Check that the libraries that the adapters and the sections of the settings need are installed. Raises
        `NotInstalled` with a line for each that an adapter misses."""
        check_installed(self.adapters)
        self.sections.check_installed()

    @property
    def idle_reason(self) -> str | None:
        """Why the app has nothing to do, and what to write; None when it has something to do. Valid once the
        settings are loaded."""
        registered = self.registry.everything
        if any(each.enabled for each in (*registered, *self.registry.subscriptions.values())):
            return None
        if registered:
            return "all its devices are disabled; set enabled to true for one of them"
        if not self.registry.without_devices:
            return "it registers nothing; decorate a function with @app.telemetry"
        empty = [row.path for row in self.rows if row.value in ("[]", "{}")]
        if not empty:
            return f"the settings name no device for {', '.join(self.registry.without_devices)}"
        named = f"{empty[0]!r} is" if len(empty) == 1 else f"{', '.join(map(repr, empty))} are"
        what = to_write(self.declaration.name, "leadsman.toml", self.declaration.model, tuple(empty[0].split(".")))
        return f"it has no devices, because {named} empty; {what}"


def _sections_of(extensions: Iterable[Extension]) -> dict[str, type]:
    """The classes of the sections of extensions, by name."""
    return {each.name: each.settings for each in extensions if each.settings is not None}


def check_settings(given: object) -> "tuple[type[BaseModel] | None, BaseModel | None]":
    """The model that `App` was given as `settings`, and the settings themselves if they are filled already. Raises
    `InvalidType`."""
    if given is None:
        return None, None
    model: Any = given if isinstance(given, type) else type(given)
    if not hasattr(model, "model_fields"):
        raise InvalidType(f"settings is {given!r}; write a pydantic model: class Settings(BaseModel): …")
    return model, None if isinstance(given, type) else cast("BaseModel", given)

"""A simulated day of an app whose devices who runs it has changed."""

from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.tools.simulation.scenario import QUIET_DAY
from leadsman.tools.simulation.simulator import Simulation, simulate, stage_of
from leadsman.tools.simulation.variant import AS_WRITTEN


def test_a_simulated_day_sees_the_same_options():
    app = App("house", mqtt="mqtt://nowhere.invalid")

    @app.telemetry("boiler", interval="1m")
    async def boiler() -> dict[str, float]:
        return {"t": 1.0}

    where = Where.nowhere({"devices.boiler.interval": "10m"})
    simulation = Simulation(app, where, QUIET_DAY, 3600.0, 1)
    found = simulate(simulation, stage_of(simulation), AS_WRITTEN, lambda part: None)

    assert found.days[0].slots == 6

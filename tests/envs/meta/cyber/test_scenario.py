"""The tables of the scenario, against what is published of it."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.cyber import scenario as sc


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (0, "Sleep"),
        (1, "Monitor"),
        (2, "Analyse Defender"),
        (27, "Remove User4"),
        (51, "DecoyFemitter User2"),
        (55, "DecoyHarakaSMPT Enterprise0"),
        (116, "DecoyTomcat User2"),
        (131, "DecoyVsftpd User4"),
        (139, "Restore Op_Server0"),
    ],
)
def test_actions_have_their_published_numbers(action: int, name: str):
    assert sc.action_name(action) == name
    if action > 1:
        assert sc.action_number(int(sc.VERB_OF[action]), int(sc.HOST_OF[action])) == action


def test_the_decoys_that_fit_a_fresh_host_are_the_published_ones():
    linux, user = "Apache HarakaSMPT Tomcat Vsftpd", "Apache Smss Svchost Tomcat"
    published = [linux, linux, "Femitter", "Femitter", *[linux] * 4, user, user]
    published += ["Apache Femitter SSHD Tomcat", "SSHD Vsftpd", "Vsftpd"]
    for host, names in enumerate(published):
        actions = [sc.action_number(sc.FIRST_DECOY + decoy, host) for decoy in range(8)]
        fits = [sc.OWN_PORTS[host] & sc.BLOCKED_BY[action] == 0 for action in actions]
        assert {name for name, fit in zip(sc.DECOYS, fits, strict=True) if fit} == set(names.split())


def test_the_members_of_a_set_are_counted_and_numbered():
    for members in ([], [0], [3, 12], list(range(13))):
        number = sum(1 << member for member in members)
        assert sc.SIZE[number] == len(members)
        assert sc.NTH[number * 13 : number * 13 + len(members)].tolist() == members


def test_decoys_open_their_ports():
    assert sc.DECOY_PORTS[0] == 0
    both = 1 << sc.APACHE | 1 << sc.VSFTPD
    assert sc.DECOY_PORTS[both] == sc.ports(80)
    assert sc.DECOY_PORTS[255] == sc.ports(80, 21, 25, 139, 22, 3389, 443)


def test_the_heaviest_of_the_options_are_ranked_as_published():
    assert [sc.EXPLOITS[one] for one in sc.RANKING] == (
        ["FTP", "Haraka", "SQL", "HTTPSRFI", "HTTPRFI", "EternalBlue", "BlueKeep", "SSH"]
    )
    assert np.sort(sc.RANKING).tolist() == list(range(sc.NUM_EXPLOITS))

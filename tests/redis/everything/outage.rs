//! What hosts grant in each kind of outage, beside the bound of docs/modes.md. Each test prints rows of a table.

use crate::outage::{Fault, Outage};

const FAULTS: [Fault; 3] = [Fault::Stopped, Fault::Killed, Fault::KilledWithoutItsData];

fn each_fault(hosts: usize, with_callers: usize) {
    for fault in FAULTS {
        Outage { hosts, with_callers, fault, asked: &["window"], restarts: false }.check();
    }
}

#[test]
fn of_one_host() {
    each_fault(1, 1);
}

#[test]
fn of_three_hosts() {
    each_fault(3, 3);
}

#[test]
fn of_three_hosts_of_which_one_is_asked() {
    each_fault(3, 1);
}

#[test]
fn of_five_hosts() {
    each_fault(5, 5);
}

#[test]
fn of_five_hosts_of_which_one_is_asked() {
    each_fault(5, 1);
}

fn each_size(fault: Fault, asked: &'static [&'static str], restarts: bool) {
    for hosts in [1, 3, 5] {
        Outage { hosts, with_callers: hosts, fault, asked, restarts }.check();
    }
}

#[test]
fn in_which_a_host_begins_anew() {
    each_size(Fault::Killed, &["window"], true);
}

#[test]
fn while_reservations_are_under_way() {
    each_size(Fault::Stopped, &["reserved"], false);
}

#[test]
fn while_reservations_are_under_way_and_redis_loses_its_data() {
    each_size(Fault::KilledWithoutItsData, &["reserved"], false);
}

#[test]
fn under_a_bucket() {
    each_size(Fault::Killed, &["bucket"], false);
}

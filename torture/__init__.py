"""Trials that the package must survive: hostile files, odd numbers, kills, full disks, little memory, signals.

Every trial has a seed, so that each can be run again alone; what was tried is counted in records.jsonl.
"""

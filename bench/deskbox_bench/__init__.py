"""How fast and how true Deskbox is, beside other ways to drive the same desktop.

    works      what is measured            subjects   who does it
    stage      the guest, ready for it     rotation   whose turn it is
    starts     how long a desktop takes    host       the backends that start them here
    memory     how much a guest takes
    statistics from samples to figures     targets    what the figures have to be
    report     tables and documents        plot       pictures

`guest/` is carried into the guest and runs there: the programs of the subjects that live in it, and the site
that they click on.
"""
